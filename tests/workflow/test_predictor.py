"""A saved model on other tables: the same columns, classes and values, in parts or whole."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import pskem
from pskem import SharedKernelClassifier, SharedKernelDensity
from pskem.persistence import read_header
from pskem.tables import TableError, write_parts
from pskem.workflow import Caution, Predictor, Task, train


def test_a_saved_model_predicts_the_table_as_the_trained_one(table, trained, tmp_path):
    path = tmp_path / "model.pskem"
    trained.save(path)
    assert read_header(path).metadata["table"]["target"] == "species"
    predictor = Predictor.load(path)
    whole = pd.concat(predictor.predictions(str(table), proba=True, keep=["id"]))
    assert list(whole.columns) == ["id", "prediction", "p(a)", "p(b)", "p(c)"]
    assert len(whole) == 400
    rows = trained.task.X.index
    expected = trained.pipeline.predict_proba(trained.task.X)
    np.testing.assert_allclose(whole.iloc[rows, 2:], expected, rtol=1e-13)
    assert (whole["prediction"].iloc[rows] == trained.pipeline.predict(trained.task.X)).all()
    # In parts of a few rows, of which some hold one category, or nothing but gaps.
    parts = list(predictor.predictions(str(table), proba=True, rows=3))
    assert [len(part) for part in parts] == [3] * 133 + [1]
    np.testing.assert_allclose(pd.concat(parts).iloc[:, 1:], whole.iloc[:, 2:], rtol=1e-12)


def judged(predictor, source, target, **reading):
    """All parts together."""
    labels, proba, n_without = zip(*predictor.judged(str(source), target, **reading), strict=True)
    return np.concatenate(labels), np.concatenate(proba), sum(n_without)


def test_judging_takes_rows_with_a_class_and_counts_the_others(table, trained, tmp_path):
    trained.save(tmp_path / "model.pskem")
    predictor = Predictor.load(tmp_path / "model.pskem")
    target = predictor.target_for(str(table))
    for rows in (1000, 30):  # at once and in parts
        labels, proba, n_without = judged(predictor, table, target, rows=rows)
        assert n_without == 2
        assert (predictor.classes[labels] == trained.task.y).all()
        assert proba.shape == (398, 3)
    other = pd.read_csv(table).replace({"species": {"c": "d"}})
    other.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(TableError, match=r"class.*d that the model was not trained on. It knows a"):
        judged(predictor, tmp_path / "other.csv", "species")
    other.assign(species=None).to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(TableError, match="holds no class"):
        judged(predictor, tmp_path / "none.csv", "species")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_kept_columns_come_out_as_they_went_in(table, trained, tmp_path, kind):
    frame = pd.read_csv(table)
    n = len(frame)
    text = ["" if i < 3 else f"{i:04}" for i in range(n)]
    frame = frame.assign(
        code=text,
        big=pd.array([None if i == 4 else 2**60 + i for i in range(n)], dtype="Int64"),
        late=[None] * (n - 1) + ["x"],
    )
    path = str(tmp_path / f"kept.{kind}")
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    trained.save(tmp_path / "model.pskem")
    predictor = Predictor.load(tmp_path / "model.pskem")
    keep = ["code", "big", "late", "width", "colour"]
    without = pd.concat(predictor.predictions(path, proba=True))
    out = str(tmp_path / "out.parquet")
    write_parts(predictor.predictions(path, proba=True, keep=keep, rows=3), out)
    read = pd.read_parquet(out, dtype_backend="numpy_nullable")
    assert read["code"].tolist() == text
    assert [str(v) for v in read["big"][[0, 5]]] == [str(2**60), str(2**60 + 5)]
    assert read["late"].tolist()[-1] == "x"
    assert read["colour"].tolist() == frame["colour"].tolist()
    np.testing.assert_allclose(read["width"].astype(float), frame["width"], rtol=1e-15)
    np.testing.assert_allclose(read.iloc[:, -3:].astype(float), without.iloc[:, -3:], rtol=1e-12)


def test_what_is_rejected_now_and_then_is_one_column_of_parquet(table, trained, tmp_path):
    trained.save(tmp_path / "model.pskem")
    predictor, out = Predictor.load(tmp_path / "model.pskem"), str(tmp_path / "out.parquet")
    asked = {"caution": Caution(0.9), "rows": 3}
    parts = list(predictor.predictions(str(table), **asked))
    assert any(part["rejected"].isna().all() for part in parts)
    assert any(part["prediction"].isna().all() for part in parts)
    write_parts(predictor.predictions(str(table), **asked), out)
    read, whole = pd.read_parquet(out), pd.concat(parts, ignore_index=True)
    assert read["rejected"].fillna("").tolist() == whole["rejected"].fillna("").tolist()
    assert read["prediction"].fillna("").tolist() == whole["prediction"].fillna("").tolist()


def test_classes_are_known_by_text_or_by_value(tmp_path, rng):
    n = 90
    y = np.arange(n) % 3
    frame = pd.DataFrame({"x": rng.standard_normal(n) + 9.0 * y})
    classes = {
        "whole.csv": ["0.0", "1.0", "2.0"],
        "fractions.csv": ["0.5", "1.0", "2.0"],
        "codes.csv": ["00", "01", "02"],
    }
    for name, texts in classes.items():
        path = tmp_path / name
        frame.assign(c=np.array(texts)[y]).to_csv(path, index=False)
        train(Task.read(str(path), "c"), SharedKernelClassifier()).save(tmp_path / "m")
        predictor = Predictor.load(tmp_path / "m")
        values = np.array([float(text) for text in texts])[y]
        frame.assign(c=values).to_parquet(tmp_path / "t.parquet")
        frame.assign(c=values)[y > 0].to_parquet(tmp_path / "part.parquet")
        for other, rows in ((path, y >= 0), ("t.parquet", y >= 0), ("part.parquet", y > 0)):
            labels, _, _ = judged(predictor, tmp_path / other, "c")
            np.testing.assert_array_equal(labels, y[rows])
        again = train(Task.read(str(tmp_path / "t.parquet"), "c"), SharedKernelClassifier())
        again.save(tmp_path / "m")
        labels, _, _ = judged(Predictor.load(tmp_path / "m"), path, "c")
        np.testing.assert_array_equal(labels, y)


def test_metadata_of_others_are_no_table(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=4, random_state=0).fit(X, y)
    pskem.save(model, tmp_path / "m", metadata={"numeric": True, "target": 3})
    assert Predictor.load(tmp_path / "m").columns is None
    pskem.save(model, tmp_path / "m", metadata={"table": {"numeric": []}})
    with pytest.raises(TableError, match="damaged description of its table"):
        Predictor.load(tmp_path / "m")


def test_bare_models_take_columns_by_name_or_by_number(tmp_path):
    X, y = load_iris(return_X_y=True)
    frame = load_iris(as_frame=True).data
    path = tmp_path / "model.pskem"
    frame.assign(note="x").to_csv(tmp_path / "iris.csv", index=False)
    model = SharedKernelClassifier(n_components=4, random_state=0)
    for data in (X, frame):
        pskem.save(model.fit(data, y), path)
        (part,) = Predictor.load(path).predictions(str(tmp_path / "iris.csv"))
        assert (part["prediction"] == model.predict(data)).all()
    pskem.save(model.fit(X[:, :3], y), path)
    with pytest.raises(TableError, match=r"takes 3 columns of numbers without names.*has 4"):
        list(Predictor.load(path).predictions(str(tmp_path / "iris.csv")))
    with pytest.raises(TableError, match="does not say which column"):
        Predictor.load(path).target_for("iris.csv")
    pskem.save(SharedKernelDensity(n_components=2).fit(X), path)
    with pytest.raises(TableError, match="SharedKernelDensity, which is no fitted classifier"):
        Predictor.load(path)


def test_a_model_of_python_knows_its_categories_in_a_file(tmp_path, rng):
    """In a file all is text, and a number may be written in several ways."""
    y = rng.integers(2, size=300)
    frame = pd.DataFrame(
        {
            "grade": pd.Categorical(
                np.where(rng.random(300) < 0.1, np.nan, (y + rng.integers(2, size=300)))
            ),
            "x": rng.standard_normal(300) + y,
            "colour": np.where(rng.random(300) < 0.2 + 0.6 * y, "red", "blue"),
        }
    )
    model = pskem.SharedKernelClassifier(random_state=0).fit(frame, y)
    pskem.save(model, tmp_path / "m.pskem")
    frame.assign(grade=frame["grade"].astype("Int64")).to_csv(tmp_path / "t.csv", index=False)
    predictor = Predictor.load(tmp_path / "m.pskem")
    (found,) = predictor.predictions(str(tmp_path / "t.csv"), proba=True)
    np.testing.assert_allclose(found["p(1)"], model.predict_proba(frame)[:, 1], rtol=1e-9)
