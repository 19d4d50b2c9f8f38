"""The command line: what it prints, where, with which exit code, and what it leaves on disk."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pskem
from pskem.cli.app import pskem as group
from pskem.cli.app import run
from pskem.persistence import read_header
from pskem.starts import Uniform

COMMANDS = [
    [],
    ["demo"],
    ["fit"],
    ["tune"],
    ["predict"],
    ["evaluate"],
    ["inspect"],
    ["datasets"],
    ["datasets", "list"],
    ["datasets", "fetch"],
    ["datasets", "where"],
    ["reproduce"],
    ["study"],
]


def files():
    return sorted(os.listdir())


def figure(out, name):
    return float(re.search(rf"^{name}\s+([\d.]+) %$", out, re.MULTILINE).group(1)) / 100


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command, capsys):
    assert run([*command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Usage: {' '.join(['pskem', *command])} ")
    assert err == ""
    if command != ["datasets"]:
        assert "Examples:\n  pskem" in out or "Examples:\n    pskem" in out
    assert run([*command, "-h"]) == 0


def test_without_arguments_the_help_is_shown(capsys):
    assert run([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"pskem, version {pskem.__version__}\n"


def test_options_of_fit_mirror_the_parameters_of_the_estimator():
    options = {parameter.name for parameter in group.get_command(None, "fit").params}
    parameters = set(pskem.SharedKernelClassifier().get_params())
    # --categorical says which columns are categories, and a command does not go on from another.
    assert parameters - options == {"categorical_features", "stepwise", "verbose", "warm_start"}


# fit


def test_fit_prints_a_summary_and_saves_a_model_that_does_as_it_says(iris_folder, capsys):
    assert run(["fit", "train.csv", "--target", "species"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"rows\s+90 to train, 10 to validate", out)
    assert re.search(r"features\s+5 in \d+ block", out)
    assert re.search(r"views\s+[2-6] of \d+ that were tried", out)
    assert re.search(r"classes\s+setosa, versicolor, virginica", out)
    assert re.search(r"saved\s+train.pskem", out)
    assert err == ""
    assert files() == ["test.csv", "train.csv", "train.pskem"]
    frame = pd.read_csv("train.csv")
    loaded = pskem.load("train.pskem")
    right = np.mean(loaded.predict(frame) == frame["species"])
    n = figure(out, "training accuracy") * 90 + figure(out, "validation accuracy") * 10
    assert right * 100 == pytest.approx(n, abs=0.1)


def test_fit_prints_its_views_as_json_too(iris_folder, capsys):
    assert run(["fit", "train.csv", "-t", "species", "--json", "-q"]) == 0
    result = json.loads(capsys.readouterr().out)
    model = pskem.load("train.pskem")[-1]
    assert result["block_views"] == model.block_views_.tolist()
    assert [view["view"] for view in result["views"]] == list(range(model.n_views_))
    assert result["n_tried"] == len(model.trials_) > 1
    exponents = {trial["view"]: trial["exponent"] for trial in model.trials_}
    assert all(view["exponent"] == exponents[view["view"]] for view in result["views"])


def test_the_seed_is_also_that_of_independent_components(iris_folder):
    def unmixing(seed):
        assert run(["fit", "train.csv", "-t", "species", "--ica", "--seed", seed, "-q"]) == 0
        return pskem.load("train.pskem").named_steps["ica"].components_

    first, same, other = map(unmixing, ("0", "0", "1"))
    assert np.array_equal(first, same)
    assert not np.allclose(first, other)


def test_fit_takes_the_parameters(iris_folder, capsys):
    options = ["--covariance-type", "tied", "-k", "4,5", "--n-blocks", "2", "--priors", "uniform"]
    options += ["--init", "random", "--init-range", "-1", "1", "--seed", "7", "--max-iter", "9"]
    options += ["--validation-fraction", "0", "--tol", "0", "--reg-covar", "0.2", "--json"]
    assert run(["fit", "train.csv", "-t", "species", *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n_components"] == [4, 5, 3]  # two blocks of numbers, and the sites
    assert result["n_iter"] == 9
    assert result["n_train"] == 100
    assert result["validation_accuracy"] is None
    parameters = pskem.load("train.pskem")[-1].get_params()
    assert parameters["random_state"] == 7
    assert parameters["priors"] == "uniform"
    assert parameters["init"] == Uniform(-1.0, 1.0)
    assert parameters["reg_covar"] == 0.2
    assert parameters["verbose"] == 0


def test_the_same_command_gives_the_same_file(iris_folder):
    for name in ("a.pskem", "b.pskem"):
        assert run(["fit", "train.csv", "-t", "species", "-o", name, "-q"]) == 0
    assert (iris_folder / "a.pskem").read_bytes() == (iris_folder / "b.pskem").read_bytes()


def test_fit_remarks_go_to_stderr_and_can_be_silenced(iris_folder, capsys):
    frame = pd.read_csv("train.csv")
    frame["id"] = [f"flower {i}" for i in range(100)]
    frame.to_csv("train.csv", index=False)
    command = ["fit", "train.csv", "-t", "species"]
    assert run(command) == 0
    assert capsys.readouterr().err.startswith("Column 'id' is left out: it looks like an ident")
    assert run([*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert run([*command, "--drop", "site", "--categorical", "id", "-q"]) == 0
    metadata = read_header("train.pskem").metadata["table"]
    assert metadata["categorical"] == ["id"]
    assert metadata["dropped"] == {"site": "as asked"}


@pytest.mark.parametrize("kind", ["tsv", "parquet", "arff", "csv.gz"])
def test_fit_reads_every_kind_of_table(iris_folder, kind, capsys):
    frame = pd.read_csv("train.csv")
    if kind == "parquet":
        frame.to_parquet("t.parquet")
    elif kind == "arff":
        names = "".join(f"@ATTRIBUTE '{name}' REAL\n" for name in frame.columns[:4])
        kinds = "@ATTRIBUTE species {setosa,versicolor,virginica}\n@ATTRIBUTE site {north,south}\n"
        text = frame.to_csv(index=False, header=False)
        (iris_folder / "t.arff").write_text(f"@RELATION t\n{names}{kinds}@DATA\n{text}")
    else:
        frame.to_csv(f"t.{kind}", index=False, sep="\t" if kind == "tsv" else ",")
    assert run(["fit", "train.csv", "-t", "species", "-o", "a.pskem"]) == 0
    expected = capsys.readouterr().out
    assert run(["fit", f"t.{kind}", "-t", "species", "-o", "a.pskem"]) == 0
    timeless = [re.sub(r"in [\d.]+ s", "", text) for text in (expected, capsys.readouterr().out)]
    assert timeless[0] == timeless[1]


def test_fit_named_sets_know_their_classes_and_features(iris_folder, tiny, capsys):
    assert run(["fit", "digits", "-k", "20", "--max-iter", "5", "--tol", "0", "-q"]) == 0
    assert re.search(r"features\s+24 in 1 block", capsys.readouterr().out)
    assert list(pskem.load("digits.pskem").named_steps) == ["normalize", "pca", "classifier"]


def test_progress_is_shown_on_a_terminal_only(iris_folder):
    pytest.importorskip("pty", reason="pseudo-terminals are for Unix")
    import pty

    command = [sys.executable, "-m", "pskem", "fit", "train.csv", "-t", "species"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert "\x1b" not in piped.stdout
    master, slave = pty.openpty()
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, text=True, check=True)
    os.close(slave)
    drawn = os.read(master, 100_000).decode()
    os.close(master)
    assert re.search(r"pass 3/100.*log likelihood/sample", drawn)
    assert re.search(r"forms tried 1/\d+", drawn)
    assert re.search(r"converged after \d+ passes", drawn)
    assert "\x1b" not in shown.stdout


# tune


def test_tune_prints_the_table_and_saves_the_best(iris_folder, capsys):
    command = ["tune", "train.csv", "-t", "species", "--folds", "3", "--seconds", "100"]
    assert run([*command, "--json", "--quiet", "-o", "best.pskem"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert err == ""
    merits = [np.mean(trial["accuracies"]) for trial in result["trials"]]
    assert merits == sorted(merits, reverse=True)
    best = result["trials"][0]
    classifier = pskem.load("best.pskem")[-1]
    assert classifier.covariance_type == best["covariance_type"]
    assert classifier.shrinkage == best["shrinkage"]
    assert (classifier.n_components, classifier.n_blocks) == (
        best["n_components"],
        best["n_blocks"],
    )
    assert result["best"]["n_train"] == 100
    assert run([*command[:-1], "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = "kernels blocks covariance shrinkage accuracy +/- log loss seconds"
    assert lines[1].split() == headings.split()
    assert lines[3].split()[:4] == ["auto"] * 4  # without time, what fit does
    assert "auto: the defaults of fit, which multiply models of several forms." in lines
    assert any(re.match(r"views +\d of \d+ that were tried", line) for line in lines)
    defaults = [trial for trial in result["trials"] if trial["covariance_type"] == "auto"]
    assert [trial["n_components"] for trial in defaults] == ["auto"]


# predict


def test_predictions_are_those_of_the_model(iris_model, capsys):
    frame = pd.read_csv("test.csv")
    loaded = pskem.load(iris_model)
    assert run(["predict", "model.pskem", "test.csv"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["prediction", *loaded.predict(frame)]
    assert err == ""
    command = ["predict", "model.pskem", "test.csv", "--proba", "--keep", "site"]
    readers = {
        "out.csv": pd.read_csv,
        "out.tsv": lambda path: pd.read_csv(path, sep="\t"),
        "out.parquet": pd.read_parquet,
    }
    for name, read_back in readers.items():
        assert run([*command, "-o", name]) == 0
        assert capsys.readouterr() == ("", "")
        read = read_back(name)
        probabilities = ["p(setosa)", "p(versicolor)", "p(virginica)"]
        assert read.columns.tolist() == ["site", "prediction", *probabilities]
        assert read["site"].tolist() == frame["site"].tolist()
        np.testing.assert_allclose(read.iloc[:, 2:], loaded.predict_proba(frame), rtol=1e-12)


def test_predict_escapes_formulas_if_asked_for(iris_folder, capsys):
    frame = pd.read_csv("train.csv").replace("setosa", "=cmd|'/c calc'!A1")
    frame.to_csv("evil.csv", index=False)
    assert run(["fit", "evil.csv", "-t", "species", "-k", "6", "-q"]) == 0
    capsys.readouterr()
    assert run(["predict", "evil.pskem", "evil.csv"]) == 0
    assert "\n=cmd" in capsys.readouterr().out
    assert run(["predict", "evil.pskem", "evil.csv", "--safe-csv"]) == 0
    out = capsys.readouterr().out
    assert "\n\"'=cmd" in out
    assert "\n=cmd" not in out


def test_predict_reads_stdin_and_writes_stdout(iris_model):
    command = [sys.executable, "-m", "pskem", "predict", "model.pskem", "-"]
    with open("test.csv", "rb") as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "prediction"
    assert len(done.stdout.splitlines()) == 51


def test_predict_holds_a_part_of_the_file_at_a_time(iris_model, monkeypatch):
    sizes = []
    loaded = pskem.load(iris_model)
    original = type(loaded).predict_proba

    def watched(self, X):
        sizes.append(len(X))
        return original(self, X)

    monkeypatch.setattr(type(loaded), "predict_proba", watched)
    frame = pd.read_csv("test.csv")
    pd.concat([frame] * 1000).to_csv("long.csv", index=False)
    assert run(["predict", "model.pskem", "long.csv", "-o", "out.csv"]) == 0
    assert sizes == [20_000, 20_000, 10_000]
    assert len(pd.read_csv("out.csv")) == 50_000


def test_a_reader_that_stops_early_is_no_error(iris_model):
    frame = pd.read_csv("test.csv")
    pd.concat([frame] * 1000).to_csv("long.csv", index=False)
    command = f"{sys.executable} -m pskem predict model.pskem long.csv | head -2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "prediction"
    assert done.stderr == ""


# evaluate and inspect


def test_evaluate_prints_the_figures(iris_model, capsys):
    frame = pd.read_csv("test.csv")
    loaded = pskem.load(iris_model)
    assert run(["evaluate", "model.pskem", "test.csv"]) == 0
    out = capsys.readouterr().out
    assert figure(out, "accuracy") == pytest.approx(loaded.score(frame, frame["species"]), abs=1e-4)
    for name in ("balanced accuracy", "log loss", "Brier score", "calibration error", "precision"):
        assert name in out
    assert run(["evaluate", "model.pskem", "test.csv", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] == loaded.score(frame, frame["species"])
    assert np.sum(result["confusion"]) == result["n_samples"] == 50
    assert {scores["name"] for scores in result["classes"]} == set(frame["species"])


def test_inspect_prints_what_is_in_the_file(iris_model, capsys):
    assert run(["inspect", "model.pskem", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    classifier = pskem.load(iris_model)[-1]
    assert result["shared_proportion"] == classifier.shared_proportion()
    kernels = [len(block.means) for block in classifier.blocks_]
    assert [block["n_components"] for block in result["blocks"]] == kernels
    held = (classifier.blocks_[0].weights >= 0.01).sum(axis=1)
    assert result["blocks"][0]["kernels_per_class"] == held.tolist()
    assert result["metadata"]["table"]["target"] == "species"
    assert run(["inspect", "model.pskem"]) == 0
    out = capsys.readouterr().out
    assert "shared proportion" in out
    assert "held by virginica" in out
    density = pskem.SharedKernelDensity(n_components=2).fit(load_iris().data)
    pskem.save(density, "density")
    assert run(["inspect", "density"]) == 0
    pskem.save(StandardScaler(), "scaler")
    assert run(["inspect", "scaler"]) == 1
    assert "scaler cannot be shown. There are no kernels in a Stand" in capsys.readouterr().err


def test_inspect_shows_what_auto_stands_for(tmp_path, capsys):
    X, y = load_iris(return_X_y=True)
    X = np.hstack([X, X[:, :1] ** 2])
    model = pskem.SharedKernelClassifier(n_blocks=2, random_state=0).fit(X, y)
    pskem.save(model, tmp_path / "m")
    assert run(["inspect", str(tmp_path / "m"), "--json"]) == 0
    chosen = json.loads(capsys.readouterr().out)["chosen"]
    assert chosen["n_blocks"] == [2]
    assert chosen["n_components"] == [len(block.means) for block in model.blocks_]
    assert chosen["shrinkage"] == [4.0, 3.0]  # one more than the features of a block
    assert chosen["discriminative_iter"] == [max(0, len(model.log_posteriors_) - 1)]
    assert chosen["early_stopping"] == [False]  # rows were asked about in turn
    assert chosen["covariance_type"] == ["full", "full"]
    assert (chosen["n_views"], chosen["margins"]) == ([1], [False, False])
    assert chosen["block_weights"] == np.round(model.block_weights_, 3).tolist()
    assert run(["inspect", str(tmp_path / "m")]) == 0
    out = capsys.readouterr().out
    kept = model.discriminative_best_iter_
    later = f" and {kept} discriminative" if kept else ""
    assert re.search(rf"^passes +{model.n_iter_} of EM{later}$", out, re.M)
    assert re.search(r"^shrinkage +'auto' +\[4.0, 3.0\]$", out, re.M)
    assert re.search(r"^block_weights +'auto' +\[", out, re.M)
    assert re.search(r"^n_blocks +2$", out, re.M)  # it was given
    search = pskem.SharedKernelClassifierCV(
        n_components=[6], n_blocks=[1], shrinkage="auto", selection="bic"
    )
    pskem.save(search.fit(X, y), tmp_path / "m")
    assert run(["inspect", str(tmp_path / "m")]) == 0
    best = search.best_params_["shrinkage"]
    assert re.search(rf"^shrinkage +'auto' +{best}$", capsys.readouterr().out, re.M)


def test_inspect_tells_views_apart(tmp_path, capsys):
    X, y = load_iris(return_X_y=True)
    model = pskem.SharedKernelClassifier(random_state=0).fit(X, y)
    assert model.n_views_ > 1
    pskem.save(model, tmp_path / "m")
    assert run(["inspect", str(tmp_path / "m"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [block["view"] for block in result["blocks"]] == model.block_views_.tolist()
    assert [view["view"] for view in result["views"]] == list(range(model.n_views_))
    for view in result["views"]:
        (trial,) = (trial for trial in model.trials_ if trial["view"] == view["view"])
        assert (view["log_loss"], view["exponent"]) == (trial["log_loss"], trial["exponent"])
        own = [b["n_components"] for b in result["blocks"] if b["view"] == view["view"]]
        assert view["n_components"] == own
    assert run(["inspect", str(tmp_path / "m")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^view +form +kernels +discriminative passes +held-out log loss", out, re.M)
    for trial in model.trials_:
        line = rf"^{trial['view']} +\S.* {trial['log_loss']:.4f} +{trial['exponent']:.3g}$"
        assert bool(re.search(line, out, re.M)) == (trial["view"] is not None)
    assert re.search(r"^block +view +features", out, re.M)
    alone = pskem.SharedKernelClassifier(covariance_type="full", random_state=0).fit(X, y)
    pskem.save(alone, tmp_path / "m")
    assert run(["inspect", str(tmp_path / "m")]) == 0
    assert not re.search(r"^(view|block +view)", capsys.readouterr().out, re.M)


def test_inspect_knows_estimators_that_hold_others(tmp_path, capsys):
    X, y = load_iris(return_X_y=True)
    member = pskem.SharedKernelClassifier(n_blocks=2)
    several = pskem.PartitionEnsemble(member, 3, random_state=0).fit(X, y)
    chosen = pskem.SharedKernelClassifierCV(n_components=[3], n_blocks=[1], shrinkage=["auto"])
    models = {"several": (several, 3, 6), "chosen": (chosen.fit(X, y), 1, 1)}
    for name, (model, n_members, n_blocks) in models.items():
        path = str(tmp_path / name)
        pskem.save(make_pipeline(StandardScaler().fit(X), model), path)
        assert run(["inspect", path]) == 0
        assert type(model).__name__ in capsys.readouterr().out
        assert run(["inspect", path, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["members"] == n_members
        assert len(result["blocks"]) == n_blocks


# datasets


def test_datasets_are_listed_found_and_fetched(tiny, capsys):
    home = str(tiny[0])
    assert run(["datasets", "list", "--data-home", home, "--json"]) == 0
    states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["rice"] == states["iris"] == "here"
    (tiny[0] / "rice" / "Rice_Cammeo_Osmancik.arff").unlink()
    assert run(["datasets", "list", "--data-home", home]) == 0
    assert re.search(r"rice .*to be fetched", capsys.readouterr().out)
    assert run(["datasets", "where", "--data-home", home]) == 0
    assert capsys.readouterr().out == f"{home}\n"
    assert run(["datasets", "fetch", "mnist", "--data-home", home]) == 0
    assert capsys.readouterr().out == f"mnist: 4 file(s) in {home}/mnist\n"


# demo


def test_demo_compares_on_one_split_and_writes_a_page(iris_folder, capsys):
    pytest.importorskip("matplotlib")
    assert run(["demo", "-o", "page.html", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    accuracy = {entry["name"]: entry["accuracy"] for entry in result["entries"]}
    assert set(accuracy) == {"shared kernels", "LDA", "QDA", "kNN", "RBF-SVM"}
    assert accuracy["shared kernels"] > accuracy["LDA"] > 0.9
    losses = {entry["name"]: entry["log_loss"] for entry in result["entries"]}
    assert losses.pop("RBF-SVM") is None  # it has no probabilities
    assert min(losses, key=losses.get) == "shared kernels"  # as the README says
    page = (iris_folder / "page.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    for name in accuracy:
        assert f">{name}</td>" in page


def test_weights_and_class_weights_reach_the_model(tmp_path, capsys, rng):
    y = rng.integers(2, size=90)
    frame = pd.DataFrame({"a": rng.standard_normal(90) + y, "w": 1.0 + 2.0 * y, "kind": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    priors = {}
    for name, options in [("w", ["--weights", "w"]), ("b", ["--class-weight", "balanced"])]:
        path = tmp_path / f"{name}.pskem"
        given = [str(tmp_path / "t.csv"), "-t", "kind", "-o", str(path), *options]
        assert run(["fit", *given, "--validation-fraction", "0", "-q"]) == 0
        priors[name] = pskem.load(path)[-1].class_prior_
    np.testing.assert_allclose(priors["w"][1], 3 * y.mean() / (1 + 2 * y.mean()), rtol=1e-12)
    frame_features = pskem.load(tmp_path / "w.pskem").n_features_in_
    assert frame_features == 1
    w = pskem.load(tmp_path / "b.pskem")
    np.testing.assert_allclose(priors["b"], [0.5, 0.5], rtol=1e-12)
    assert w.n_features_in_ == 2


@pytest.fixture
def shifted(tmp_path, rng):
    """A model of three classes, and a table in which they are otherwise frequent."""

    def table(name, n, priors):
        y = rng.choice(3, size=n, p=priors)
        corners = 1.5 * np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
        frame = pd.DataFrame(corners[y] + rng.standard_normal((n, 2)), columns=["a", "b"])
        frame.assign(kind=np.array(["x", "y", "z"])[y]).to_csv(tmp_path / name, index=False)

    table("train.csv", 1500, [0.5, 0.3, 0.2])
    table("new.csv", 1200, [0.1, 0.2, 0.7])
    model = str(tmp_path / "m.pskem")
    assert run(["fit", str(tmp_path / "train.csv"), "-t", "kind", "-o", model, "-q"]) == 0
    return tmp_path


def predicted(folder, *options):
    output = folder / "out.csv"
    given = [str(folder / "m.pskem"), str(folder / "new.csv"), "-o", str(output), "--overwrite"]
    assert run(["predict", *given, "--proba", *options]) == 0
    return pd.read_csv(output, keep_default_na=False)


def test_predictions_under_other_priors(shifted, capsys):
    plain_proba = predicted(shifted)[["p(x)", "p(y)", "p(z)"]].to_numpy()
    trained = pskem.load(shifted / "m.pskem")[-1].class_prior_
    (shifted / "priors.csv").write_text("class,prior\nz,0.7\nx,0.1\ny,0.2\n")
    given = predicted(shifted, "--priors", str(shifted / "priors.csv"))
    expected = plain_proba * [0.1, 0.2, 0.7] / trained
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(given[["p(x)", "p(y)", "p(z)"]], expected, atol=1e-6)
    uniform = predicted(shifted, "--priors", "uniform")
    assert (uniform["prediction"] == "x").mean() < 0.5
    capsys.readouterr()
    estimated = predicted(shifted, "--priors", "estimate")
    told = capsys.readouterr().err
    assert "Estimated priors: x 0." in told
    truth = pd.read_csv(shifted / "new.csv")["kind"]
    better = (estimated["prediction"] == truth).mean()
    assert better > (predicted(shifted)["prediction"] == truth).mean()


def test_rows_that_get_no_class_say_why(shifted):
    rows = pd.read_csv(shifted / "new.csv")
    rows.loc[:4, ["a", "b"]] = 50.0
    rows.to_csv(shifted / "new.csv", index=False)
    found = predicted(shifted, "--reject", "0.7", "--outliers", "0.01")
    assert list(found.columns) == ["prediction", "rejected", "p(x)", "p(y)", "p(z)"]
    assert set(found["rejected"][:5]) == {"outlier"}
    assert set(found["rejected"]) == {"", "uncertain", "outlier"}
    assert ((found["prediction"] == "") == (found["rejected"] != "")).all()
    sure = found[["p(x)", "p(y)", "p(z)"]].max(axis=1)
    assert (sure[found["rejected"] == "uncertain"] < 0.7).all()
    again = predicted(shifted, "--reject", "0.0")  # replaces earlier predictions
    assert set(again["rejected"]) == {""}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("class,prior\nx,0.5\ny,0.5\n", "lacks 'z'"),
        ("class,prior\nx,0.5\ny,0.25\nz,0.25\nw,0\n", "names 'w'"),
        ("class,prior\nx,0.5\nx,0.25\nz,0.25\n", "several rows for the class 'x'"),
        ("class,prior\nx,0.9\ny,-0.9\nz,0.9\n", "not negative"),
        ("class,prior\nx,0\ny,0\nz,0\n", "not all zero"),
        ("kind,prior\nx,1\n", "there is no 'class'"),
    ],
)
def test_priors_that_do_not_fit_the_model_are_refused(shifted, content, message, capsys):
    (shifted / "priors.csv").write_text(content)
    given = [str(shifted / "m.pskem"), str(shifted / "new.csv"), "-o", str(shifted / "o.csv")]
    assert run(["predict", *given, "--priors", str(shifted / "priors.csv")]) != 0
    assert message in capsys.readouterr().err
    assert not (shifted / "o.csv").exists()


def test_priors_of_a_file_are_in_proportion(shifted):
    proba = []
    for name, values in [("counts", (30, 10, 20)), ("shares", (0.5, 1 / 6, 1 / 3))]:
        rows = "".join(f"{c},{v}\n" for c, v in zip("xyz", values, strict=True))
        (shifted / f"{name}.csv").write_text(f"class,prior\n{rows}")
        proba.append(predicted(shifted, "--priors", str(shifted / f"{name}.csv"), "--proba"))
    columns = ["p(x)", "p(y)", "p(z)"]
    one, other = (frame[columns].to_numpy(dtype=float) for frame in proba)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_outliers_are_as_in_the_training_under_other_priors(shifted):
    one = predicted(shifted, "--outliers", "0.05")
    other = predicted(shifted, "--outliers", "0.05", "--priors", "uniform")
    assert (one["rejected"] == other["rejected"]).all()
    assert (one["rejected"] == "outlier").any()


def test_priors_that_are_neither_a_word_nor_a_file(shifted, capsys):
    given = [str(shifted / "m.pskem"), str(shifted / "new.csv")]
    assert run(["predict", *given, "--priors", "estimat"]) == 2
    assert "neither uniform nor estimate" in capsys.readouterr().err


def test_priors_cannot_be_estimated_from_stdin(shifted, capsys):
    assert run(["predict", str(shifted / "m.pskem"), "-", "--priors", "estimate"]) != 0
    assert "stdin" in capsys.readouterr().err


def test_outliers_need_rows_that_were_held_out(capsys, tmp_path):
    small = tmp_path / "small.csv"
    frame = pd.DataFrame(load_iris().data, columns=list("abcd")).assign(kind=load_iris().target)
    frame.to_csv(small, index=False)
    made = tmp_path / "small.pskem"
    given = ["fit", str(small), "-t", "kind", "-o", str(made), "-q", "--no-early-stopping"]
    given.append("--validation-fraction")
    assert run([*given, "0"]) == 0
    capsys.readouterr()
    assert run(["predict", str(made), str(small), "--outliers", "0.01"]) != 0
    assert "no rows to tell outliers by" in capsys.readouterr().err
    assert run([*given, "0.2"]) == 0  # which also tell outliers
    assert run(["predict", str(made), str(small), "--outliers", "0.1"]) == 0
    assert capsys.readouterr().out.count("outlier") >= 3


def test_question_marks_are_gaps_and_odd_texts_are_told(tmp_path, capsys, rng):
    ages = [str(age) for age in rng.integers(20, 70, size=100)]
    frame = pd.DataFrame({"age": ages, "size": ages, "kind": np.arange(100) % 2})
    frame.loc[::5, "age"], frame.loc[::5, "size"] = "?", "oops"
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = ["fit", str(tmp_path / "t.csv"), "-t", "kind", "-o", str(tmp_path / "m.pskem")]
    assert run([*given, "--unlabelled"]) == 0
    told = capsys.readouterr().err
    assert "Column 'size' is taken for categories, though most of it is numbers" in told
    assert "'oops'" in told
    assert "'age'" not in told
    assert "All rows have a class" in told
    assert run([*given, "--unlabelled-weight", "0.5"]) == 2


def test_rows_without_a_class_are_learnt_from_if_asked(tmp_path, rng, capsys):
    y = rng.integers(2, size=300)
    X = rng.standard_normal((300, 4)) + 3.0 * y[:, None]
    kind = np.where(np.arange(300) < 10, np.where(y == 0, "x", "y"), "")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=kind)
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = [str(tmp_path / "t.csv"), "-t", "kind", "--validation-fraction", "0"]
    for name, options in [("with", ["--unlabelled"]), ("without", [])]:
        path = tmp_path / f"{name}.pskem"
        assert run(["fit", *given, "-o", str(path), *options]) == 0
        told = capsys.readouterr()
        assert ("are there to learn from" in told.err) == bool(options)
        assert ("rows without a class" in told.out) == bool(options)
        fitted = pskem.load(path)[-1]
        assert fitted.classes_.tolist() == ["x", "y"]
        assert f"{300 if options else 10} to train" in told.out
    right = pskem.load(tmp_path / "with.pskem").predict(frame[list("abcd")]) == np.where(
        y == 0, "x", "y"
    )
    assert right.mean() > 0.97
    tuned = ["tune", *given[:3], "-o", str(tmp_path / "tuned.pskem"), "--unlabelled"]
    assert run([*tuned, "--seconds", "2", "--folds", "2"]) == 0
