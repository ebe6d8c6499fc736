"""HTTP/1.1 and server-sent events over asyncio, with the means to be a rude client.

An official client cannot leave in the middle of a body, reset a connection or send what is no HTTP;
the soak does. Only the standard library is needed.
"""

import asyncio
import json
import socket
import struct

# A server that says nothing for so long has lost the request.
SILENCE_SECONDS = 300


class Lost(Exception):
    """The server closed or fell silent where an answer was due."""


class Connection:
    """One connection to (host, port); opened by the first request, and again after a close."""

    def __init__(self, address):
        self.address = address
        self.reader = self.writer = None
        self.keep = False
        self.chunked = False
        self.left = 0

    async def send(self, data):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(*self.address)
        self.writer.write(data)
        await self.writer.drain()

    async def request(self, method, path, body=b"", headers=()):
        """Sends a request and returns the status; the body is then read with body() or events()."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.address[0]}",
                 f"Content-Length: {len(body)}", *headers]
        if body:
            lines.append("Content-Type: application/json")
        fresh = self.writer is None
        try:
            await self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
            return await self.head()
        except (Lost, OSError):
            if fresh:
                raise
        # The server may close an idle connection at any time: once more on a new one.
        self.close()
        return await self.request(method, path, body, headers)

    async def _timed(self, awaitable):
        try:
            return await asyncio.wait_for(awaitable, SILENCE_SECONDS)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Lost(f"the connection ended: {error!r}") from error
        except asyncio.TimeoutError as error:
            raise Lost(f"silence for {SILENCE_SECONDS} s") from error

    async def head(self):
        head = (await self._timed(self.reader.readuntil(b"\r\n\r\n"))).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {name.strip().lower(): value.strip()
                   for name, _, value in (line.partition(":") for line in lines if line)}
        self.chunked = headers.get("transfer-encoding", "") == "chunked"
        self.left = int(headers.get("content-length", 0))
        self.keep = headers.get("connection", "keep-alive").lower() != "close"
        return int(first.split()[1])

    async def _pieces(self):
        if not self.chunked:
            yield await self._timed(self.reader.readexactly(self.left))
        while self.chunked:
            size = int(await self._timed(self.reader.readuntil(b"\r\n")), 16)
            data = await self._timed(self.reader.readexactly(size + 2))
            if size == 0:
                break
            yield data[:-2]
        if not self.keep:
            self.close()

    async def body(self):
        return b"".join([piece async for piece in self._pieces()])

    async def events(self):
        """The data of each event as JSON, up to [DONE]; raises Lost if that never comes."""
        rest, done = b"", False
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n\n")
            for event in whole:
                if done or not event.startswith(b"data: "):
                    raise Lost(f"not an event that was due: {event!r}")
                done = event == b"data: [DONE]"
                if not done:
                    yield json.loads(event[6:])
        if not done:
            raise Lost("a stream without [DONE]")

    def close(self, reset=False):
        """Hangs up; with `reset` without the usual goodbye, as a client that crashes."""
        if self.writer is None:
            return
        if reset:
            raw = self.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()
        self.reader = self.writer = None
