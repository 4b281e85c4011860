"""Results in a database, by Spark's JDBC writer: the tables of a batch and its number in one transaction.

Tasks write their rows into staging tables, in parallel and past the driver. One transaction then takes the batch's
number, which lets in one driver at a time, replaces the rows of the same keys, and empties the staging tables. A batch
that Spark replays writes the same totals again. A database that takes two texts of a key for the same is refused.
"""
# ruff: noqa: S608 - names of tables are this program's own

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from discovery.core.errors import ConfigError, StateError
from discovery.spark.jobs.tables import Held, Shape, Table, refuse_strangers

SCHEME = "jdbc:"
_STATE = "kafka_discovery_batches"
_ATTEMPT = "attempt"
_JAVA_SQL_DATE = 91
"""`java.sql.Types.DATE`: two of our days are never the same date."""
_SHOWN = re.compile(r"(jdbc:\w+:(?://)?)(?:[^?;]*@)?([^@?;=]*)(?:[?;][^@]*)?")
"""Kind and place, between `user:password@` and the options that follow `?` or `;`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcOutput:
    """A database."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's JDBC writer and of the driver: `user`, `password`, `driver`…"""

    def __repr__(self) -> str:
        """Show kind and place, without what may hold a password; no more than the scheme where that is unclear."""
        found = _SHOWN.fullmatch(self.url)
        return "".join(found.groups()) if found else f"{SCHEME}..."


class JdbcWriter:
    """Spark's `foreachBatch` function. The constructor does no I/O."""

    def __init__(self, output: JdbcOutput, shape: Shape, *, job: str, checkpoint: str) -> None:
        """Name the job, whose number of the last batch is a row, and the checkpoint it belongs to."""
        self._output = output
        self._shape = shape
        self._job = job
        self._checkpoint = checkpoint
        self._is_ready = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the tables of this batch, or nothing of it.

        Raises:
            ConfigError: database and checkpoint do not belong together, or it takes texts of a key for the same.
            StateError: the database refuses; nothing of the batch is in its tables.
            Py4JJavaError: a task failed, by what it read or while it wrote staged rows; likewise.

        Runs: driver, once per micro-batch, on Spark's callback thread; blocks for the batch and its transaction.
        """
        session, attempt = batch.sparkSession, uuid.uuid4().hex
        query_id = str(session.sparkContext.getLocalProperty("sql.streaming.queryId"))
        batch.persist()
        try:
            tables = self._shape(batch)
            with self._connection(session) as sql:
                if not self._is_ready:
                    sql.run(_CREATE_STATE)
                held = sql.held(self._job)
                refuse_strangers(repr(self._output), self._checkpoint, held, query_id=query_id, batch_id=batch_id)
                for table in [] if self._is_ready else tables:
                    sql.create(table)
                    self._refuse_merging(sql, table)
                self._is_ready = True
            for table in tables:
                self._stage(table, attempt)
            with self._connection(session) as sql:
                sql.begin()
                sql.take(self._job, held, query_id, batch_id)
                for table in tables:
                    sql.merge(table, attempt)
                sql.commit()
        finally:
            batch.unpersist()

    def _stage(self, table: Table, attempt: str) -> None:
        """Write rows beside their table; here the batch is read, and what fails in a task says so itself."""
        options = {**self._output.options, "url": self._output.url, "dbtable": _staging(table)}
        _staged(table, attempt).write.format("jdbc").options(**options).mode("append").save()

    def _refuse_merging(self, sql: "_Sql", table: Table) -> None:
        """Refuse a table in which a row would replace another key's, or be left out as its double."""
        texts = [name for name, kind in table.rows.dtypes if name in table.key and kind == "string"]
        for name, column in product((table.name, _staging(table)), texts):
            if sql.merges(name, column):
                raise ConfigError(
                    f"--output: {self._output} takes texts that differ in case or in a space at the end for the same "
                    f"in {column} of {name}, so that rows of two keys become one; convert the table (ALTER TABLE, its "
                    "rows stay) to a binary collation that pads nothing (MariaDB: utf8mb4_nopad_bin, MySQL: "
                    "utf8mb4_0900_bin), a column that is CHAR or no text to TEXT or VARCHAR"
                )

    @contextmanager
    def _connection(self, session: SparkSession) -> Iterator["_Sql"]:
        """Connect by Spark's own way, which finds the driver among the jars of the session.

        Only for statements: whatever Java throws inside is the database's refusal.
        """
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - no public way
        options = {**self._output.options, "url": self._output.url, "dbtable": _STATE}
        try:
            jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
            known = jdbc.JDBCOptions(jvm.PythonUtils.toScalaMap(options))
            dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._output.url)
            connection = dialect.createConnectionFactory(known).apply(-1)
            try:
                yield _Sql(connection, known, partial(jdbc.JdbcUtils.schemaString, dialect))
            finally:
                connection.close()  # what was begun and not committed is undone
        except Py4JJavaError as error:
            said = str(error.java_exception.getMessage()).partition("\n")[0]
            raise StateError(f"--output: {self._output} cannot be written: {said}") from error


_CREATE_STATE = f"""CREATE TABLE IF NOT EXISTS {_STATE} (
  job VARCHAR(64) NOT NULL PRIMARY KEY, query_id VARCHAR(64) NOT NULL, last_batch_id BIGINT NOT NULL)"""


class _Sql:
    """A connection of the JVM, as few statements as every database takes."""

    def __init__(self, connection: Any, known: Any, columns_of: Callable[..., str]) -> None:
        self._connection = connection
        self._known = known
        self._columns_of = columns_of

    def names(self, columns: Iterable[str]) -> str:
        """Quote columns as Spark's writer does: `offset` is a word of SQL."""
        quote = self._connection.getMetaData().getIdentifierQuoteString()
        return ", ".join(f"{quote}{column}{quote}" for column in columns)

    def begin(self) -> None:
        self._connection.setAutoCommit(False)

    def commit(self) -> None:
        self._connection.commit()

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        prepared = self._connection.prepareStatement(statement)
        for number, value in enumerate(values, 1):
            prepared.setObject(number, value)
        return int(prepared.executeUpdate())

    def create(self, table: Table) -> None:
        """Make a table that is missing, with the columns that Spark's writer would give it and with its key.

        In one statement: a driver that dies leaves no table without a key. Its staging table has none.
        """
        frames: dict[str, tuple[Any, str]] = {
            table.name: (table.rows, f", PRIMARY KEY ({self.names(table.key)})"),
            _staging(table): (_staged(table, ""), ""),
        }
        for name, (rows, key) in frames.items():
            columns = self._columns_of(rows._jdf.schema(), False, self._known.createTableColumnTypes())  # noqa: SLF001 - no public way
            self.run(f"CREATE TABLE IF NOT EXISTS {name} ({columns}{key}) {self._known.createTableOptions()}")

    def held(self, job: str) -> Held | None:
        prepared = self._connection.prepareStatement(f"SELECT query_id, last_batch_id FROM {_STATE} WHERE job = ?")
        prepared.setObject(1, job)
        rows = prepared.executeQuery()
        return Held(rows.getString(1), rows.getLong(2)) if rows.next() else None

    def merges(self, table: str, column: str) -> bool:
        """Ask whether other texts equal `a` there, in an expression that has the column's collation; dates do not."""
        none = f"(SELECT MAX({self.names([column])}) AS k FROM {table} WHERE 1 = 0) probe"
        found = self._connection.prepareStatement(f"SELECT k FROM {none}").executeQuery()
        if found.getMetaData().getColumnType(1) == _JAVA_SQL_DATE:
            return False
        asked = f"SELECT COUNT(*) FROM {none} WHERE COALESCE(k, 'a') IN ('A', 'a ')"
        rows = self._connection.prepareStatement(asked).executeQuery()
        return bool(rows.next() and rows.getLong(1))

    def take(self, job: str, held: Held | None, query_id: str, batch_id: int) -> None:
        """Write the batch's number over the one that was read: another driver that did so meanwhile ends this one."""
        if held is None:
            self.run(f"INSERT INTO {_STATE} VALUES (?, ?, ?)", (job, query_id, batch_id))
            return
        last = f"UPDATE {_STATE} SET last_batch_id = ? WHERE job = ? AND query_id = ? AND last_batch_id = ?"
        if self.run(last, (batch_id, job, query_id, held.last_batch_id)) != 1:
            raise StateError(f"--output: another driver wrote batch {batch_id} of {job} meanwhile; one must be stopped")

    def merge(self, table: Table, attempt: str) -> None:
        """Replace rows by those of this attempt; a task that was repeated may have left one twice."""
        staging, columns = _staging(table), self.names(table.rows.columns)
        keys = [self.names([name]) for name in table.key]
        same = " AND ".join(f"staged.{key} = {table.name}.{key}" for key in keys)
        ours = f"FROM {staging} staged WHERE staged.{self.names([_ATTEMPT])} = ?"
        self.run(f"DELETE FROM {table.name} WHERE EXISTS (SELECT 1 {ours} AND {same})", (attempt,))
        self.run(f"INSERT INTO {table.name} ({columns}) SELECT DISTINCT {columns} {ours}", (attempt,))
        self.run(f"DELETE FROM {staging}")


def _staging(table: Table) -> str:
    return f"{table.name}_staging"


def _staged(table: Table, attempt: str) -> DataFrame:
    return table.rows.withColumn(_ATTEMPT, F.lit(attempt))
