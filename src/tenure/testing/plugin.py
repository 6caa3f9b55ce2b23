"""The fixture and the options, for `-p tenure.testing.plugin` where plugins are not loaded by themselves."""

pytest_plugins: tuple[str, ...] = ("_tenure_pytest",)
