"""How Spark's Python processes start: quickly, from the installed PySpark; and again where Spark gave one up too soon.

`worker_python` names what `PYSPARK_PYTHON` should be; a `StartedQuery` is started again if it died before its first
batch because a process did not call back in time.
"""
