"""What is said where an installation lacks the `spark` extra."""

PACKAGES = ("pyspark", "py4j", "pyarrow", "numba")


def missing(package: str) -> str:
    """Return the sentence that names a package and the extra that brings it.

    Runs: anywhere (pure).
    """
    return f"{package} is not installed; pip install 'kafka-discovery[spark]'"
