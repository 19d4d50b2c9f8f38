"""Which columns are what, and which features they become."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from pskem import SharedKernelClassifier
from pskem.tables import (
    Columns,
    TableError,
    align,
    encode,
    fit_encoder,
    indicator_encoder,
    infer_columns,
    keeps_columns,
    labels_of,
    make_encoder,
    scaler_of,
    unknown_categories,
    weights_of,
)

pytestmark = pytest.mark.plumbing


def test_a_column_that_is_not_there_is_told_with_those_that_are():
    frame = pd.DataFrame({**{f"x{i}": [1.0] for i in range(12)}, "Outcome": ["a"]})
    with pytest.raises(TableError, match="no column 'outcom' to take the classes from") as caught:
        labels_of(frame, "outcom")
    message = str(caught.value)
    assert "from. Did you mean 'Outcome'? The table has 13 column(s): 'x0'" in message
    assert message.endswith("'x9' and 3 more.")
    with pytest.raises(TableError, match=r"to take weights from\. The table has 13"):
        weights_of(frame, "zzz")


def test_columns_are_sorted_by_what_they_hold():
    n = 200
    frame = pd.DataFrame(
        {
            "id": [f"patient {i}" for i in range(n)],
            "age": np.arange(n) % 60,
            "dose": np.linspace(0, 1, n),
            "smoker": np.arange(n) % 3 == 0,
            "ward": np.array(["north", "south"])[np.arange(n) % 2],
            "zip": np.arange(n) % 7 + 1000,
            "seen": pd.date_range("2020-01-01", periods=n),
            "gap": np.nan,
            "same": 1.0,
            "note": ["x"] * n,
            "day": [f"{i % 28 + 1}.{i % 12 + 1}.2020" for i in range(n)],
            "time": [f"2020-{i % 12 + 1:02}-01 12:00" for i in range(n)],
            "number": np.arange(n) + 17,
            "Unnamed: 0": np.arange(n)[::-1],
            "list": [[1, 2]] * n,
            "price": ["1.5", "n/a?"] + ["2.5"] * (n - 2),
            "outcome": np.arange(n) % 2,
        }
    )
    columns = infer_columns(frame, "outcome", drop=["dose"], categorical=["zip"])
    assert columns.numeric == ["age", "price"]
    assert columns.categorical == ["smoker", "ward", "zip"]
    assert columns.dropped == {
        "id": "it looks like an identifier (200 distinct texts in 200 rows)",
        "dose": "as asked",
        "seen": "it holds dates",
        "gap": "it is empty",
        "same": "it has one value only",
        "note": "it has one value only",
        "day": "it holds dates",
        "time": "it holds dates",
        "number": "it numbers the rows",
        "Unnamed: 0": "it has no name and a different number in every row",
        "list": "it holds lists or the like",
    }


def test_wrong_names_of_columns_are_told(frame):
    for options in ({"drop": ["weight"]}, {"categorical": ["weight"]}):
        match = r"no column 'weight'.*The table has 4 column.*'length', 'count'"
        with pytest.raises(TableError, match=match):
            infer_columns(frame, "species", **options)
    for options in ({"drop": ["species"]}, {"categorical": ["species"]}):
        with pytest.raises(TableError, match="'species' holds the classes"):
            infer_columns(frame, "species", **options)
    with pytest.raises(TableError, match="No column is left"):
        infer_columns(frame[["species"]], "species")
    twice = pd.concat([frame, frame[["count"]]], axis=1)
    with pytest.raises(TableError, match="several columns called 'count'"):
        infer_columns(twice, "species")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", None, "b"], ["a", "b"]),
        ([1, 2, 1], [1, 2, 1]),
        ([1.0, np.nan, 2.0], [1, 2]),
        ([0.5, 1.5, 2.0], ["0.5", "1.5", "2"]),
        ([2**53, 2**53 + 1, 2**53 + 2], [2**53, 2**53 + 1, 2**53 + 2]),
        (pd.array([1, None, 2**60 + 1], dtype="Int64"), [1, 2**60 + 1]),
        ([np.inf, 1.0, 2.0], ["inf", "1", "2"]),
        ([True, False, True], ["True", "False", "True"]),
        (["true", "FALSE", None], ["True", "False"]),
        (pd.Categorical(["x", "y", "x"]), ["x", "y", "x"]),
    ],
)
def test_labels_of_every_type(values, expected):
    labels, present = labels_of(pd.DataFrame({"c": values}), "c")
    assert labels.tolist() == expected
    assert present.sum() == len(expected)


def test_whole_numbers_are_one_category_whatever_stands_beside_them():
    columns = Columns([], ["c"], {})
    for values in ([3, 7, 3], [3.0, 7.0, np.nan], ["3", "7", None], pd.array([3, 7, None])):
        texts = align(pd.DataFrame({"c": values}), columns)["c"].tolist()
        assert texts[:2] == ["3", "7"]
    halves = align(pd.DataFrame({"c": [0.5, 2.0, np.nan]}), columns)["c"].tolist()
    assert halves[:2] == ["0.5", "2"]


def test_slips_among_numbers_count_as_missing_and_are_told():
    frame = pd.DataFrame({"x": [str(i) for i in range(30)] + ["n/a?", " ", " 7 "]})
    with pytest.warns(UserWarning, match=r"1 value.*of the column 'x' are no numbers.*'n/a\?'"):
        numbers = align(frame, Columns(["x"], [], {}))["x"]
    np.testing.assert_array_equal(numbers, [*range(30), np.nan, np.nan, 7.0])


def test_measurements_are_no_classes():
    with pytest.raises(TableError, match="98 different numbers with fractions: measurements"):
        labels_of(pd.DataFrame({"c": np.linspace(0, 1, 100)}), "c")
    with pytest.raises(TableError, match="no column 'd' to take the classes from"):
        labels_of(pd.DataFrame({"c": [1]}), "d")


def test_align_gives_the_columns_of_the_training_in_their_order(frame):
    columns = Columns(["count", "length"], ["colour"], {})
    aligned = align(frame[["colour", "length", "species", "count"]], columns)
    assert list(aligned.columns) == ["count", "length", "colour"]
    assert aligned["colour"].isna().tolist() == [False, False, True, False]
    text = frame.assign(count=["1", "2", "3", "4"])
    np.testing.assert_array_equal(align(text, columns)["count"], [1.0, 2.0, 3.0, 4.0])
    with pytest.warns(UserWarning, match="2 value.s. of the column 'length' are infinite"):
        infinite = align(frame.assign(length=[np.inf, 1.0, -np.inf, 2.0]), columns)
    np.testing.assert_array_equal(infinite["length"], [np.nan, 1.0, np.nan, 2.0])


def test_align_tells_what_is_wrong(frame):
    with pytest.raises(TableError, match=r"lacks 1 column.*: 'weight'\. The table has 4"):
        align(frame, Columns(["count", "weight"], [], {}))
    with pytest.raises(TableError, match="'colour' holds texts, such as 'red', where numbers"):
        align(frame, Columns(["colour"], [], {}))
    with pytest.raises(TableError, match=r"'length' holds 1e\+200; values beyond"):
        align(frame.assign(length=1e200), Columns(["length"], [], {}))


def test_numbers_are_scaled_and_categories_stay_as_they_are(frame):
    columns = Columns(["length", "count"], ["colour"], {})
    encoder = make_encoder(columns)
    assert isinstance(encoder, Pipeline)
    assert keeps_columns(encoder)
    table = align(frame, columns)
    X = encoder.fit_transform(table.assign(other=1.0)[[*reversed(table.columns), "other"]])
    assert list(X.columns) == ["length", "count", "colour"]
    known = np.array([1.5, np.nan, 3.25, -4.0])  # a gap stays a gap
    np.testing.assert_allclose(X["length"], (known - np.nanmean(known)) / np.nanstd(known))
    np.testing.assert_allclose(X["count"], (frame["count"] - 2.5) / np.std([1, 2, 3, 4]))
    pd.testing.assert_series_equal(X["colour"], table["colour"])
    assert scaler_of(make_encoder(Columns([], ["colour"], {}))) is None


def test_for_others_gaps_are_filled_and_categories_indicated(frame):
    columns = Columns(["length", "count"], ["colour"], {})
    encoder = indicator_encoder(columns)
    assert not keeps_columns(encoder)
    X = encoder.fit_transform(align(frame, columns))
    filled = np.array([1.5, 1.5, 3.25, -4.0])  # the median stands in
    np.testing.assert_allclose(X[:, 0], (filled - filled.mean()) / filled.std())
    assert X.shape == (4, 4)  # missing, blué, red: two indicators
    assert list(encoder.get_feature_names_out()[2:]) == ["colour_blué", "colour_red"]


def test_unknown_categories_are_found_by_column(frame):
    columns = Columns(["count"], ["colour", "species"], {})
    table, y = align(frame, columns), [0, 0, 1, 1]
    model = SharedKernelClassifier(categorical_features=columns.categorical).fit(table, y)
    for known in (indicator_encoder(columns).fit(table), model):
        assert unknown_categories(known, table) == {}
        new = align(frame.assign(colour=["red", "mauve", None, "beige"]), columns)
        assert unknown_categories(known, new) == {"colour": ["beige", "mauve"]}


def test_unknown_categories_do_not_stop_a_prediction(frame):
    columns = Columns(["count"], ["colour"], {})
    encoder = indicator_encoder(columns).fit(align(frame, columns))
    X = encode(encoder, align(frame.assign(colour="mauve"), columns))
    assert np.isfinite(X).all()


def test_pca_and_the_papers_features():
    columns = Columns(["a", "b", "c"], [], {})
    assert list(make_encoder(columns, pca=2).named_steps) == ["columns", "scale", "pca"]
    assert make_encoder(columns, "mnist")["pca"].n_components == 39
    assert list(make_encoder(columns, "mnist").named_steps) == ["deskew", "normalize", "pca"]
    assert make_encoder(columns, "mnist", pca=7)["pca"].n_components == 7
    assert list(make_encoder(columns, "cifar-10").named_steps) == ["normalize", "pca"]


@pytest.mark.parametrize(
    ("n_rows", "pca", "match"),
    [
        (40, 4, r"4 principal components .* 40 row\(s\) of 3 feature\(s\) have 3 at most"),
        (3, 3, r"3 principal components .* 3 row\(s\) of 3 feature\(s\) have 2 at most"),
    ],
)
def test_principal_components_are_no_more_than_there_are(rng, n_rows, pca, match):
    frame = pd.DataFrame(rng.standard_normal((n_rows, 3)), columns=["a", "b", "c"])
    columns = Columns(["a", "b", "c"], [], {})
    with pytest.raises(TableError, match=match):
        fit_encoder(make_encoder(columns, pca=pca), frame)
    encoder = make_encoder(columns, pca=2)
    fitted, features = fit_encoder(encoder, frame)
    np.testing.assert_allclose(features, fitted.transform(frame), atol=1e-9)
    np.testing.assert_array_equal(features, encoder.fit_transform(frame))
    assert features.shape == (n_rows, 2)


def test_components_of_copies_are_no_rounding(rng):
    """Copies at an offset differ by rounding, which components would blow up and batches change."""
    two = rng.standard_t(4, size=(150, 2))
    y = (two[:, 0] > 0.0).astype(int)
    frame = pd.DataFrame(np.hstack([two, two + 1e3]), columns=list("abcd"))
    columns = Columns(list("abcd"), [], {})
    for n, ica in ((3, False), (4, True)):
        match = rf"{n} principal components were asked for, but the 4 feature\(s\) have 2 that"
        with pytest.raises(TableError, match=match):
            fit_encoder(make_encoder(columns, pca=n, ica=ica, random_state=0), frame)
    for options in ({"ica": True}, {"pca": 2}, {"pca": 2, "ica": True}):
        encoder, X = fit_encoder(make_encoder(columns, **options, random_state=0), frame)
        assert X.shape == (150, 2)
        model = SharedKernelClassifier(n_components=4, random_state=0).fit(X, y)
        whole = model.predict_proba(encode(encoder, frame))
        for rows in (1, 7, 50):
            parts = [encode(encoder, frame[low : low + rows]) for low in range(0, 150, rows)]
            proba = np.vstack([model.predict_proba(part) for part in parts])
            np.testing.assert_allclose(proba, whole, atol=1e-9)
