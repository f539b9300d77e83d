"""The columns of a click log in files, by their names. Imports no TensorFlow."""

from __future__ import annotations

from recommender.settings import CATEGORIES, NUMBERS

LABEL = "label"
NUMBER_NAMES = tuple(f"I{number + 1}" for number in range(NUMBERS))
CATEGORY_NAMES = tuple(f"C{number + 1}" for number in range(CATEGORIES))
COLUMNS = (LABEL, *NUMBER_NAMES, *CATEGORY_NAMES)
PARQUET_TYPES = {
    **dict.fromkeys((LABEL, *NUMBER_NAMES), "int64"),
    **dict.fromkeys(CATEGORY_NAMES, "string"),
}
