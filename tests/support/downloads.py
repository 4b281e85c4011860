"""A real download server on this machine, and the Ivy settings that make it the only one."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from discovery.localkafka.jars.artifacts import ArtifactSet, Dependency

_IVY_XML = """<ivy-module version="2.0"><info organisation="local.test" module="{name}" revision="1"/>
<configurations><conf name="default"/><conf name="master"/></configurations>
<publications><artifact name="{name}" type="jar" ext="jar" conf="default,master"/></publications></ivy-module>"""
_PUBLIC = """<ivysettings><resolvers><url name="public">
<ivy pattern="{url}/[module].xml"/><artifact pattern="{url}/[artifact].[ext]"/>
</url></resolvers></ivysettings>"""
_CHAIN = """<ivysettings><resolvers><chain name="default"><resolver ref="public"/></chain></resolvers></ivysettings>"""


class DownloadServer(ThreadingHTTPServer):
    """Serves modules x and y: `content` is the jar of each; without `flowing`, a transfer stops half way."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.flowing = threading.Event()
        self.flowing.set()
        self.half_way = threading.Event()
        self.downloads = 0
        self.breaking: set[str] = set()
        """Paths whose transfer ends half way, as when the network goes."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def java_options(self, folder: Path) -> str:
        """Write settings that know this server alone; return the options by which a JVM uses them."""
        folder.mkdir()
        texts = {"public": _PUBLIC.format(url=self.url), "default-chain": _CHAIN}
        for part in ("public", "shared", "local", "main-chain", "default-chain"):
            (folder / f"ivysettings-{part}.xml").write_text(texts.get(part, "<ivysettings/>"))
        return f"-Divy.default.settings.dir={folder.as_uri()}"


class _Handler(BaseHTTPRequestHandler):
    server: DownloadServer

    def do_HEAD(self) -> None:
        self._begin(self._body())

    def do_GET(self) -> None:
        body = self._body()
        self._begin(body)
        half = len(body) // 2
        self.wfile.write(body[:half])
        if self.path.endswith(".jar"):
            self.server.downloads += 1
            self.wfile.flush()
            self.server.half_way.set()
            self.server.flowing.wait(120)
        if self.path in self.server.breaking:
            self.close_connection = True
            return
        try:
            self.wfile.write(body[half:])
        except OSError:
            self.close_connection = True  # the other side was killed, as the test wanted

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        name, _, kind = self.path.removeprefix("/").partition(".")
        if name not in {"x", "y"}:
            return b""
        return {"jar": self.server.content, "xml": _IVY_XML.format(name=name).encode()}.get(kind, b"")

    def _begin(self, body: bytes) -> None:
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()


@contextmanager
def serving(content: bytes) -> Iterator[DownloadServer]:
    """Serve until the end of the block."""
    with DownloadServer(content) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.flowing.set()
            server.shutdown()
            thread.join()


def artifacts_with(content: bytes, pins: Path, *modules: str) -> ArtifactSet:
    """Describe the server's module x, or those named, pinned to this content."""
    names = modules or ("x",)
    pins.write_text("".join(f"{hashlib.sha256(content).hexdigest()}  {name}-1.jar\n" for name in names))
    wanted = tuple(Dependency(organisation="local.test", name=name, revision="1") for name in names)
    return ArtifactSet(folder_name="x-1", title="Module X", checksum_file=str(pins), dependencies=wanted)
