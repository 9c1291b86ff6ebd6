"""Dates, times and durations (RFC 3339) as patterns."""

from __future__ import annotations

LEAP_SECONDS = (
    "Second 60 only where it is 23:59 in UTC, and with offsets of whole and half hours: all 1,440 times of a day, each "
    "with offsets of its own, would be a hundred times the states of the rest"
)
_MONTHS = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_FOURS = "(?:0[48]|[2468][048]|[13579][26])"
#: Years that four divides, hundreds only where four divides the century.
_LEAP_YEAR = f"(?:[0-9]{{2}}{_FOURS}|(?:00|{_FOURS})00)"
_HOUR = "(?:[01][0-9]|2[0-3])"
_SIXTY = "[0-5][0-9]"
_FRACTION = "(?:\\.[0-9]+)?"
_OFFSET = f"(?:[Zz]|[+-]{_HOUR}:{_SIXTY})"


def date() -> str:
    """full-date; leap years as in RFC 3339, appendix C, from year 0000 on."""
    return f"(?:[0-9]{{4}}-(?:{_MONTHS})|{_LEAP_YEAR}-02-29)"


def _leap_seconds() -> str:
    """Local times of second 60 with the offsets for which they are 23:59:60 in UTC."""
    day, half_hour = 24 * 60, 30
    options = [f"23:59:60{_FRACTION}[Zz]"]
    for local in range(half_hour - 1, day, half_hour):
        east, west = (local + 1) % day, (day - 1 - local) % day
        offsets = f"(?:\\+{east // 60:02}:{east % 60:02}|-{west // 60:02}:{west % 60:02})"
        options.append(f"{local // 60:02}:{local % 60:02}:60{_FRACTION}{offsets}")
    return "|".join(options)


def time() -> str:
    """full-time."""
    return f"(?:{_HOUR}:{_SIXTY}:{_SIXTY}{_FRACTION}{_OFFSET}|{_leap_seconds()})"


def date_time() -> str:
    """date-time; the letters T and Z may be small."""
    return f"{date()}[Tt]{time()}"


def duration() -> str:
    """duration of appendix A."""
    seconds = "[0-9]+S"
    minutes = f"[0-9]+M(?:{seconds})?"
    time_part = f"T(?:[0-9]+H(?:{minutes})?|{minutes}|{seconds})"
    months = "[0-9]+M(?:[0-9]+D)?"
    return f"P(?:(?:[0-9]+D|{months}|[0-9]+Y(?:{months})?)(?:{time_part})?|{time_part}|[0-9]+W)"
