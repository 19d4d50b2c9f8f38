"""Study files: what they stand for, and what is said of wrong ones."""

import json
import tomllib

import pytest

from pskem.study import Study, StudyError, check_names, included, load_study, parse_study

pytestmark = pytest.mark.plumbing

SMALL = """
runs = 2
data = { source = "iris" }
split = { folds = 3 }
validation = { fraction = 0.2 }
settings = { n_blocks = 1, max_iter = 4 }
[[experiment]]
name = "ours"
grid = { n_components = [2, 3], covariance_type = ["full", "tied"] }
[[experiment]]
name = "theirs"
runs = 1
method = ["lda", { name = "knn", n_neighbors = 3 }]
"""


def test_a_grid_is_a_product_and_settings_are_inherited():
    study = parse_study("small", SMALL)
    ours, theirs = study.experiments
    assert [(p.settings["n_components"], p.settings["covariance_type"]) for p in ours.points] == [
        (2, "full"),
        (2, "tied"),
        (3, "full"),
        (3, "tied"),
    ]
    assert all(p.settings["max_iter"] == 4 for p in ours.points)
    # Settings of the shared kernels, and validation of passes, are none of the others' business.
    assert [(p.method, p.settings, p.validation) for p in theirs.points] == [
        ("lda", {}, {}),
        ("knn", {"n_neighbors": 3}, {}),
    ]
    assert [label["method"] for label in theirs.labels] == ["lda", "knn, n_neighbors=3"]


def test_runs_come_seed_by_seed():
    runs = parse_study("small", SMALL).runs()
    assert [run.seed for run in runs] == [0] * 6 + [1] * 4
    assert len({run.key for run in runs}) == 10
    assert len(parse_study("small", SMALL).runs(3)) == 18
    assert {run.point.method for run in parse_study("small", SMALL).runs(1, ["theirs"])} == {
        "lda",
        "knn",
    }
    assert len(parse_study("small", SMALL).runs(1, ["lda", "ours"])) == 5


def test_a_run_is_known_by_its_configuration_whatever_the_order_of_keys():
    turned = SMALL.replace("n_blocks = 1, max_iter = 4", "max_iter = 4, n_blocks = 1")
    keys = [run.key for run in parse_study("small", SMALL).runs()]
    assert [run.key for run in parse_study("other", turned).runs()] == keys
    changed = SMALL.replace("max_iter = 4", "max_iter = 5")
    assert (
        len({run.key for run in parse_study("small", changed).runs()} & set(keys)) == 2
    )  # the others


def test_a_study_survives_being_written_down():
    for name, text in included().items():
        study = parse_study(name, text)
        again = Study.from_dict(json.loads(json.dumps(study.as_dict())))
        assert [run.key for run in again.runs()] == [run.key for run in study.runs()]


def test_settings_that_a_study_has_by_itself_are_part_of_the_configuration():
    text = 'data = { source = "iris" }\n[[experiment]]\nmethod = ["qda", "quadratic-svm", "lda"]'
    settings = [entry.point.settings for entry in parse_study("s", text).entries]
    assert settings == [{"reg_param": 1e-4}, {"coef0": 1.0}, {}]


def test_one_block_is_one_run_however_it_is_dealt():
    for name in ("fig3", "fig4"):
        ours, theirs = (parse_study(n, included()[n]).runs() for n in ("fig2", name))
        both = {run.key for run in ours} & {run.key for run in theirs}
        alone = {run.key for run in ours if run.point.settings["n_blocks"] == 1}
        assert both == alone
        assert len(alone) == 200


def test_the_papers_experiments_are_all_there():
    studies = {name: parse_study(name, text) for name, text in included().items()}
    asked = {"table1", "fig1", "fig2", "fig3", "fig4", "fig5", "mda", "ionosphere"}
    assert asked | {"quick", "digits"} <= set(studies)
    # Section 3.3: five partitions of 36 features, K from 4 to 40, 20 runs a point.
    points = [
        (e.point.settings["n_blocks"], e.point.settings["n_components"])
        for e in studies["fig2"].entries
    ]
    assert sorted(points) == [(R, K) for R in (1, 2, 3, 6, 12) for K in range(4, 41, 4)]
    assert {e.runs for e in studies["fig2"].experiments} == {20}
    # Fig. 1 and 5 are made from runs of Fig. 2, quick from runs of all.
    keys = {name: {run.key for run in study.runs()} for name, study in studies.items()}
    assert keys["fig5"] == keys["fig2"] > keys["fig1"]
    assert keys["quick"] < set().union(*(keys[name] for name in asked))
    # Table 1: R x m, K of each data set.
    table = {
        e.point.data["source"]: (e.point.settings["n_blocks"], e.point.settings["n_components"])
        for e in studies["table1"].entries
        if e.point.method == "shared-kernels"
    }
    assert table == {
        "rice": (1, 14),
        "ionosphere": (2, 12),
        "mnist": (3, 60),
        "fashion-mnist": (10, 100),
        "cifar-10": (4, 80),
    }
    conventional = [e for e in studies["table1"].entries if e.point.method != "shared-kernels"]
    assert len(conventional) == 5 * 11
    assert {e.point.data["source"] for e in studies["digits"].entries} == {"digits"}


def test_all_classifiers_of_table_1_have_the_same_rows_and_features():
    found = {}
    for entry in parse_study("table1", included()["table1"]).entries:
        same = json.dumps([entry.point.features, entry.point.split], sort_keys=True)
        found.setdefault(entry.point.data["source"], set()).add(same)
    assert {name: len(kinds) for name, kinds in found.items()} == dict.fromkeys(found, 1)


SLICED = """
[[slice]]
study = "fig2"
where = { n_components = [8, 40], n_blocks = 3 }
"""


def test_a_slice_has_the_points_that_were_asked_for():
    base = {run.key for run in parse_study("fig2", included()["fig2"]).runs()}
    study = parse_study("s", SLICED)
    assert [entry.label for entry in study.entries] == [
        {"n_blocks": 3, "n_components": 8},
        {"n_blocks": 3, "n_components": 40},
    ]
    assert {run.key for run in study.runs()} < base
    other = parse_study("s", SLICED + "settings = { n_blocks = 4 }\nruns = 2\n")
    assert [entry.label["n_blocks"] for entry in other.entries] == [4, 4]
    assert [entry.point.settings["n_blocks"] for entry in other.entries] == [4, 4]
    assert len(other.runs()) == 4
    merged = parse_study("s", SLICED + "settings = { n_components = 9 }")
    assert len(merged.entries) == 1  # two points have become one


def test_settings_of_a_slice_are_for_the_shared_kernels():
    text = '[[slice]]\nstudy = "digits"\nsettings = { max_iter = 3 }'
    for entry in parse_study("s", text).entries:
        assert (entry.point.settings.get("max_iter") == 3) == (
            entry.point.method == "shared-kernels"
        )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("settings = { max_itr = 3 }", "Did you mean 'max_iter'"),
        ("settings = 3", "settings = 3, which should be a table"),
        ('runs = "x"', "runs = 'x'"),
        ('only = "nobody"', "Nothing here is called 'nobody'"),
        ('only = "lda"', "Nothing here is called 'lda'"),
    ],
)
def test_what_is_wrong_with_a_slice_is_said(more, said):
    with pytest.raises(StudyError) as error:
        parse_study("s", SLICED + more)
    assert said in str(error.value)


def test_a_slice_of_nothing_is_refused():
    with pytest.raises(StudyError, match="leaves nothing of fig2"):
        parse_study("s", SLICED.replace("[8, 40]", "[9]"))
    with pytest.raises(StudyError, match="study = 'fig9', which should be one of"):
        parse_study("s", SLICED.replace("fig2", "fig9"))


def test_a_figure_takes_the_experiments_that_vary_its_axis():
    text = SMALL + '\n[[figure]]\nname = "f"\nx = "n_components"\n'
    (figure,) = parse_study("small", text).figures
    assert figure["experiments"] == ["ours"]


def test_features_of_images_are_spelt_out():
    """A run is known by what it does: given or usual, the same features are the same."""
    points = [
        parse_study("s", f'data = {{ source = "mnist" }}\nfeatures = {features}\n[[experiment]]\n')
        .entries[0]
        .point
        for features in ("{}", "{ deskew = true, n_components = 39 }", "{ deskew = false }")
    ]
    assert points[0].key == points[1].key != points[2].key
    assert points[0].features["standardize"] == "global"


def test_a_files_content_is_part_of_the_configuration(tmp_path):
    text = SMALL.replace('source = "iris"', 'source = "t.csv", target = "c"')
    (tmp_path / "s.toml").write_text(text)
    keys = []
    for content in ("a,c\n1,x\n2,y\n", "a,c\n1,x\n3,y\n"):
        (tmp_path / "t.csv").write_text(content)
        study = load_study(tmp_path / "s.toml")
        assert study.experiments[0].path == str(tmp_path / "t.csv")
        keys.append({run.key for run in study.runs()})
    assert not keys[0] & keys[1]
    # ... but not where it lies.
    (tmp_path / "elsewhere").mkdir()
    for name in ("s.toml", "t.csv"):
        (tmp_path / "elsewhere" / name).write_text((tmp_path / name).read_text())
    assert {run.key for run in load_study(tmp_path / "elsewhere" / "s.toml").runs()} == keys[1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("runs = 2", "run = 2", "'run', which is not known. Did you mean 'runs'"),
        ("runs = 2", "runs = 0", "runs = 0, which should be a whole number from 1"),
        ("runs = 2", "runs = true", "runs = True"),
        ("folds = 3", "folds = 1", "folds = 1, which should be a whole number from 2"),
        ("folds = 3", 'folds = 3, order = "odd"', "should be one of given, shuffled, stratified"),
        ("fraction = 0.2", "fraction = 1.5", "between 0 and 1"),
        ("fraction = 0.2", "fraction = 0.2, rows = 5", "validates in several ways"),
        (
            '"iris"',
            '"irs"',
            "needs the file irs, which cannot be read, and no data set is called 'irs'",
        ),
        ('source = "iris"', 'target = "x"', "does not say where its data are"),
        ("n_components = [2", 'n_components = ["six"', "n_components='six'"),
        ("n_components = [2", "n_components = [[]", "n_components"),
        ("max_iter = 4", 'partition = "odd"', "partition='odd' is not known"),
        ("max_iter = 4", 'priors = "odd"', "priors='odd' is not known"),
        ("runs = 2", "runs = " + "9" * 5000, "not valid TOML"),
        ("max_iter = 4", "max_iter = " + "9" * 400, "a table of plain values"),
        ('"tied"', '"tide"', "covariance_type='tide' is not known"),
        ("n_neighbors = 3", 'n_neighbors = "three"', "The 'n_neighbors' parameter"),
        ("n_components = [2", "n_component = [2", "Did you mean 'n_components'"),
        ("n_neighbors = 3", "k = 3", "has 'k', which is not known"),
        ("grid = {", 'grid = { method = ["lda"],', "grid has methods"),
        ('name = "knn", n_neighbors', "n_neighbors", "has a method without a name"),
        ('"lda"', '"lba"', "method = 'lba', which should be one of shared-kernels, lda"),
        ('name = "theirs"', 'name = "ours"', "two experiments called 'ours'"),
        ("max_iter = 4", "tol = 4", "'tol', which a study does not take"),
        ("[[experiment]]", "[experiment]", "not valid TOML"),
        ("runs = 2", "runs = 2026-01-01", "runs = datetime.date"),
        ("max_iter = 4", "max_iter = nan", "which should be a table of plain values"),
        ("max_iter = 4", "init_scale = 2026-01-01", "which should be a table of plain values"),
        ("[2, 3]", "[]", "grid has no values for 'n_components'"),
        ("folds = 3", "folds = 3, test = 0.2", "has folds and test"),
        ("folds = 3", 'order = "given"', "has an order, but no folds"),
        ("fraction = 0.2", "rows = 5", "split.train must leave over"),
        ('"iris"', '"mnist"', "splits mnist anew"),
        ('"iris"', '"iris", target = "x"', "has 'target', which is not known"),
        ('"iris"', '"iris", drop = 3', "drop = 3, which should be a text or a list of texts"),
        ('method = ["lda"', 'method = [3, "lda"', "method = [3"),
        (
            "runs = 1",
            'paper = { accuracy = "high" }',
            "accuracy = 'high', which should be a number",
        ),
        ("n_neighbors = 3", "n_jobs = 3", "has 'n_jobs', which a study does not take"),
        (
            "settings = {",
            "settings = 3 # {",
            "settings = 3, which should be a table of plain values",
        ),
        ('source = "iris"', 'source = "iris", drop_ = 3', "'drop_', which is not known"),
    ],
)
def test_what_is_wrong_with_a_study_is_said(old, new, said):
    assert old in SMALL
    with pytest.raises(StudyError) as error:
        parse_study("small", SMALL.replace(old, new))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ('x = "n_components"', "has no name"),
        ('name = "f"', "has no x"),
        ('name = "f"\nx = "reg_covar"', "x = 'reg_covar', which should be one of"),
        ('name = "f"\nx = "n_components"\ny = "speed"', "y = 'speed'"),
        ('name = "f"\nx = "n_components"\nexperiments = ["no"]', "has 'no', which is not known"),
        ('name = "../f"\nx = "n_components"', "name = '../f'"),
        ('name = "f"\nx = "n_components"\ny = []', "y = []"),
        ('name = "f"\nx = "n_components"\nlog = "no"', "log = 'no'"),
        ('name = "f"\nx = "n_components"\nexperiments = 3', "experiments = 3"),
        ('name = "f"\nx = "n_components"\nexperiments = []', "experiments = []"),
        ('name = "f"\nx = "method"\n[[figure]]\nname = "f"\nx = "method"', "two figures called"),
    ],
)
def test_what_is_wrong_with_a_figure_is_said(figure, said):
    with pytest.raises(StudyError) as error:
        parse_study("small", f"{SMALL}\n[[figure]]\n{figure}\n")
    assert said in str(error.value)


def test_a_study_without_experiments_is_refused():
    with pytest.raises(StudyError, match=r"has no \[\[experiment\]\]"):
        parse_study("empty", "runs = 3")


def test_a_mark_at_the_beginning_of_a_file_does_not_matter(tmp_path):
    (tmp_path / "marked.toml").write_text(SMALL, encoding="utf-8-sig")
    assert len(load_study(tmp_path / "marked.toml").entries) == 6


def test_lines_may_be_methods():
    text = SMALL + '\n[[figure]]\nname = "f"\nx = "n_components"\nline = "method"\n'
    assert parse_study("small", text).figures[0]["line"] == "method"


def test_a_file_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(StudyError, match="cannot be read: No such file"):
        load_study(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="not a text file"):
        load_study(tmp_path / "b.toml")


def test_names_that_nothing_has_are_refused():
    study = parse_study("small", SMALL)
    check_names([study], ["lda", "ours", "iris"])
    with pytest.raises(
        StudyError, match=r"Nothing here is called 'pca'\. Known: 'iris', 'knn', 'lda'"
    ):
        check_names([study], ["lda", "pca"])


def test_definitions_are_toml_files():
    for text in included().values():
        assert tomllib.loads(text)["title"]
