"""Clicks on advertisements from 13 numbers and 26 categories: a recommender, with plain Keras 3."""
