"""Scoreboard over the player's log: order, completeness and legal data of every response.

Memory order it holds the channel to: a read must see every write acknowledged before the read was
accepted, and every earlier write of its own port; it may see a write that was accepted before
the data came back; it must not see a later write of its own port, nor a value that a visible later
write replaced.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

MASK = 0xFFFFFFFF
NEVER = 1 << 62


def pattern(address: int, number: int, port: int) -> int:
    """Return the beat that the player writes: its `number`-th, to a beat address."""
    value = 0
    base = (address * 0x9E3779B1 & MASK) ^ (number * 0x85EBCA77 & MASK)
    for j in range(8):
        word = (base + (j + 1) * 0xC2B2AE3D + port * 0x10000001) & MASK
        value |= (word ^ word >> 15) << 32 * j
    return value


@dataclass
class _Write:
    port: int
    order: int
    accepted: int
    value: int
    acked: int = NEVER


@dataclass
class _Request:
    port: int
    order: int
    accepted: int
    write: bool
    address: int
    length: int
    bad: bool
    beats: int = 0
    writes: list[_Write] = field(default_factory=list)


@dataclass
class Scoreboard:
    """Check one log.

    Parameters
    ----------
    store_beats
        Beats of store: requests past it must be refused.
    errors
        What was wrong, one line each; empty when all is well.
    """

    store_beats: int
    errors: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, path: Path) -> list[str]:
        """Read a log, check it, and return the errors."""
        self._pending: dict[tuple[int, bool], deque[_Request]] = defaultdict(deque)
        self._writes: dict[int, list[_Write]] = defaultdict(list)
        self._orders: Counter[int] = Counter()
        self._numbers: Counter[int] = Counter()
        self._reads: list[tuple[_Request, int, int, int]] = []
        self._doubles: Counter[int] = Counter()
        with path.open() as lines:
            for line in lines:
                kind, *words = line.split()
                getattr(self, f"_on_{kind.lower()}")(words)
        for queue in self._pending.values():
            for request in queue:
                self.errors.append(f"no response: {request}")
        for read in self._reads:
            self._check_value(*read)
        if +self._doubles:
            self.errors.append(f"double-bit errors without an error response: {self._doubles}")
        return self.errors

    def _on_a(self, words: list[str]) -> None:
        port, now, write = (int(word) for word in words[:3])
        address, length = (int(word, 16) for word in words[3:])
        bad = length == 0 or address + length > self.store_beats
        request = _Request(port, self._orders[port], now, bool(write), address, length, bad)
        self._orders[port] += 1
        self.counts["writes" if write else "reads"] += 1
        self.counts["bad"] += bad
        for beat in range(length if write else 0):
            value = pattern(address + beat, self._numbers[port], port)
            self._numbers[port] += 1
            if not bad:
                entry = _Write(port, request.order, now, value)
                request.writes.append(entry)
                self._writes[address + beat].append(entry)
        self._pending[port, bool(write)].append(request)

    def _on_k(self, words: list[str]) -> None:
        port, now, error = map(int, words)
        queue = self._pending[port, True]
        if not queue:
            self.errors.append(f"acknowledge without a write on port {port} at {now}")
            return
        request = queue.popleft()
        if error != int(request.bad):
            self.errors.append(f"acknowledge with error {error}: {request}")
        for write in request.writes:
            write.acked = now

    def _on_d(self, words: list[str]) -> None:
        port, now, error, last = (int(word) for word in words[:4])
        queue = self._pending[port, False]
        if not queue:
            self.errors.append(f"read data without a read on port {port} at {now}")
            return
        request = queue[0]
        beat = request.beats
        request.beats += 1
        if bool(last) != (request.bad or request.beats == request.length):
            self.errors.append(f"last = {last} at beat {beat} of {request}")
        if last:
            queue.popleft()
        self.counts["beats"] += 1
        value = int(words[4], 16)
        if request.bad or error == 1:
            if not (request.bad and error == 1 and value == 0):
                self.errors.append(f"error {error}, data {value:x} for {request}")
            return
        address = request.address + beat
        if error == 2:
            self.counts["uncorrectable"] += 1
            self._doubles[address] -= 1
            if value:
                self.errors.append(f"data of an uncorrectable beat at {address:#x}: {value:x}")
            return
        self._reads.append((request, address, now, value))

    def _on_e(self, words: list[str]) -> None:
        double, address = int(words[2]), int(words[3], 16)
        self.counts["double" if double else "single"] += 1
        if double:
            self._doubles[address] += 1

    def _check_value(self, read: _Request, address: int, now: int, value: int) -> None:
        """Check that a beat is one that the memory order allows."""
        writes = self._writes[address]
        allowed = [w for w in writes if w.value == value and w.accepted <= now]
        visible = [
            w
            for w in writes
            if w.acked < read.accepted or (w.port == read.port and w.order < read.order)
        ]
        if value == 0 and not visible:
            return
        for write in allowed:
            if write.port == read.port and write.order > read.order:
                continue
            if not any(self._after(other, write) for other in visible):
                return
        self.errors.append(f"wrong data at {address:#x} at clock {now}: {value:x} for {read}")

    @staticmethod
    def _after(later: _Write, earlier: _Write) -> bool:
        """Return whether one write certainly comes after another."""
        if later.port == earlier.port:
            return later.order > earlier.order
        return earlier.acked < later.accepted
