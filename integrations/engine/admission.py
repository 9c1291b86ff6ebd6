"""Admission classes: who gets how many slots, and whose grammars may use how much of a step's fuel."""

from __future__ import annotations

from dataclasses import dataclass

from .request import Request


@dataclass(frozen=True)
class AdmissionClass:
    """One class of requests."""

    #: What `Request.admission` calls it.
    name: str
    #: Its part of a step's fuel and of prefetch, relative to the other classes that have rows then.
    weight: int = 1
    #: Lanes that its tenants are spread over, each with an equal part of that fuel. A tenant's rows are in one lane,
    #: and only tenants of one lane can hold each other up. A lane takes some 30 MB with 128k tokens and 64 slots.
    lanes: int = 1
    #: Slots that its requests may hold at once; None: all.
    max_slots: int | None = None
    #: The same for one tenant.
    max_slots_per_tenant: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a class that could never be served."""
        for name in ("weight", "lanes", "max_slots", "max_slots_per_tenant"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} of the class {self.name!r} must be at least 1, not {value}")


#: Requests without a grammar, which need no fuel and no lane.
PLAIN = AdmissionClass("plain")
STRUCTURED = AdmissionClass("structured", weight=3, lanes=2)
UNTRUSTED = AdmissionClass("untrusted", max_slots_per_tenant=8)


@dataclass(frozen=True)
class Admission:
    """The classes of an engine. A request that names none is of `plain` without a grammar, of `structured` with one."""

    plain: AdmissionClass = PLAIN
    structured: AdmissionClass = STRUCTURED
    untrusted: AdmissionClass = UNTRUSTED

    def of(self, request: Request) -> AdmissionClass:
        """The class of a request. Raises ValueError for a name that is none."""
        name = request.admission or ("plain" if request.grammar is None else "structured")
        if name == self.plain.name and request.grammar is not None:
            raise ValueError(f"the admission class {name!r} is for requests without a grammar")
        for one in (self.plain, self.structured, self.untrusted):
            if one.name == name:
                return one
        raise ValueError(f"there is no admission class {name!r}")
