"""How Spark's Python processes start: quickly, from the installed PySpark; and again where Spark gave one up too soon.

`worker_python` names what `PYSPARK_PYTHON` should be, `start_query` starts a query again that died before its first
batch because a process did not call back in time.
"""
