"""pytest with the plugin alone, for the tests of another project in a folder of their own."""

from __future__ import annotations

# An installation may lack the entry point, or have the one of another checkout.
NO_ENTRY_POINTS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PLUGIN = ("-p", "tfps.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers")
