"""Frames into the sections of an automaton, slowly: what `stepmask.grammar.link` does in one kernel."""

from __future__ import annotations

from typing import Any

from stepmask.grammar.automaton import COUNTER, FINAL, HAS_CALLS, HAS_TOKENS
from stepmask.grammar.link import FAR, Frames

_Edges = list[list[tuple[int, int]]]


class Unlinked:
    """The frames as lists: by state, its byte edges {byte: target}, its calls and its tokens [(number, target)]."""

    def __init__(self, frames: Frames) -> None:
        self.n_frames = len(frames.kind)
        self.starts = frames.state_at.tolist()
        self.final = [bool(flag) for flag in frames.final]
        self.kind = frames.kind.tolist()
        self.minimum = frames.minimum.tolist()
        self.frame_of: list[int] = []
        self.bytes: list[dict[int, int]] = []
        self.calls: _Edges = []
        self.tokens: _Edges = []
        symbol = 0
        for f in range(self.n_frames):
            class_of = frames.class_of[frames.class_at[f] : frames.class_at[f + 1]].tolist()
            first = self.starts[f]
            own = range(len(class_of) - 256)
            for s in range(first, self.starts[f + 1]):
                edges = slice(frames.edge_start[s], frames.edge_start[s + 1])
                columns = (frames.edge_low[edges], frames.edge_high[edges], frames.edge_target[edges])
                runs = zip(*(column.tolist() for column in columns), strict=True)
                row = {c: target for low, high, target in runs for c in range(low, high + 1)}
                self.frame_of.append(f)
                targets = [row.get(c, -1) for c in class_of]
                self.bytes.append({b: first + targets[b] for b in range(256) if targets[b] >= 0})
                for lists, numbers in ((self.calls, frames.callee), (self.tokens, frames.token)):
                    found = [(int(numbers[symbol + i]), first + targets[256 + i]) for i in own if targets[256 + i] >= 0]
                    lists.append(sorted(edge for edge in found if edge[0] >= 0))
            symbol += len(own)

    def rows(self) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
        """(byte_class, edges, dense, single_byte, single_target)."""
        wide = [edges for edges in self.bytes if len(edges) > 1]
        numbers: dict[tuple[int, ...], int] = {}
        byte_class = [numbers.setdefault(tuple(edges.get(b, -1) for edges in wide), len(numbers)) for b in range(256)]
        firsts = [byte_class.index(c) for c in range(len(numbers))]
        edges_of: list[int] = []
        single_byte: list[int] = []
        single_target: list[int] = []
        dense: list[int] = []
        for edges in self.bytes:
            if not edges:
                edges_of.append(-1)
            elif len(edges) == 1:
                edges_of.append(-2 - len(single_byte))
                single_byte += edges.keys()
                single_target += edges.values()
            else:
                edges_of.append(len(dense) // len(firsts))
                dense += [edges.get(b, -1) for b in firsts]
        return byte_class, edges_of, dense, single_byte, single_target

    def lengths(self) -> tuple[list[int], list[int]]:
        """(fewest bytes of a string by frame, fewest bytes to a final state by state)."""
        length = [FAR] * self.n_frames
        distance = [0 if final else FAR for final in self.final]
        changed = True
        while changed:
            changed = False
            for s in range(len(distance)):
                ways = [1 + distance[t] for t in self.bytes[s].values()]
                ways += [length[f] + distance[t] for f, t in self.calls[s]]
                ways += [distance[t] for _, t in self.tokens[s]]
                best = min([distance[s], *ways])
                changed |= best < distance[s]
                distance[s] = best
            for f in range(self.n_frames):
                items = max(self.minimum[f], 1) if self.kind[f] == COUNTER else 1
                best = min(distance[self.starts[f]] * items, FAR)
                changed |= best < length[f]
                length[f] = best
        return length, distance

    def next_bytes(self) -> tuple[list[set[int]], list[set[int]]]:
        """(bytes that a string of each frame begins with, bytes that may follow it)."""
        first = [set(self.bytes[self.starts[f]]) for f in range(self.n_frames)]
        follow: list[set[int]] = [set() for _ in first]
        for _ in range(self.n_frames + 1):
            for f in range(self.n_frames):
                for callee, _target in self.calls[self.starts[f]]:
                    first[f] |= first[callee]
        for _ in range(self.n_frames + 1):
            for s, calls in enumerate(self.calls):
                for callee, t in calls:
                    follow[callee] |= set(self.bytes[t]).union(*(first[g] for g, _ in self.calls[t]))
                    if self.final[t]:
                        caller = self.frame_of[s]
                        follow[callee] |= follow[caller]
                        if self.kind[caller] == COUNTER:
                            follow[callee] |= first[caller]
        return first, follow

    def has_cycle(self) -> bool:
        """Whether a state of the root frame leads back to itself."""
        left = set(range(self.starts[1]))
        while left:
            ends = {
                s
                for s in left
                if left.isdisjoint([*self.bytes[s].values(), *(t for _, t in self.calls[s] + self.tokens[s])])
            }
            if not ends:
                return True
            left -= ends
        return False


def linked(frames: Frames) -> tuple[dict[str, list[int]], int, bool]:
    """What `link.link` returns, as lists."""
    plain = Unlinked(frames)
    byte_class, edges, dense, single_byte, single_target = plain.rows()
    length, distance = plain.lengths()
    sections: dict[str, list[int]] = {
        "byte_class": byte_class,
        "edges": edges,
        "dense": dense,
        "single_byte": single_byte,
        "single_target": single_target,
        "state_flags": [
            FINAL * final | HAS_CALLS * bool(calls) | HAS_TOKENS * bool(tokens)
            for final, calls, tokens in zip(plain.final, plain.calls, plain.tokens, strict=True)
        ],
        "state_frame": plain.frame_of,
        "state_distance": distance,
        "frame_length": length,
        "frame_start": plain.starts[:-1],
        "frame_kind": plain.kind,
        "frame_minimum": plain.minimum,
        "frame_maximum": frames.maximum.tolist(),
    }
    for name, number, found in (("call", "call_frame", plain.calls), ("token", "token_symbol", plain.tokens)):
        starts = [0]
        for edges_of in found:
            starts.append(starts[-1] + len(edges_of))
        sections[f"{name}_start"] = starts
        sections[number] = [value for edges_of in found for value, _ in edges_of]
        sections[f"{name}_target"] = [target for edges_of in found for _, target in edges_of]
    for name, sets in zip(("frame_first", "frame_follow"), plain.next_bytes(), strict=True):
        sections[name] = [_word(bytes_of, w) for bytes_of in sets for w in range(4)]
    return sections, len(set(byte_class)), not plain.has_cycle()


def _word(bytes_of: set[int], word: int) -> int:
    value = sum(1 << (b - 64 * word) for b in bytes_of if b >> 6 == word)
    return value - (1 << 64) if value >> 63 else value


def as_lists(sections: dict[str, Any]) -> dict[str, list[int]]:
    """Sections as `linked` has them."""
    return {name: array.tolist() for name, array in sections.items()}
