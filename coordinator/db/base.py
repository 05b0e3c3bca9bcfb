"""The declarative base and the column types that SQL itself lacks.

Hashes and addresses are 0x-hex text; money is decimal text, because SQLite's integers end at 2^63.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import BigInteger, Dialect, Integer, String, TypeDecorator
from sqlalchemy.orm import DeclarativeBase, mapped_column


class WeiText(TypeDecorator[int]):
    """An amount in base units: int in Python, decimal text in SQL."""

    impl = String(78)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)


Count = Annotated[int, mapped_column(BigInteger().with_variant(Integer, "sqlite"))]
HashText = Annotated[str, mapped_column(String(66))]
AddressText = Annotated[str, mapped_column(String(42))]
WeiAmount = Annotated[int, mapped_column(WeiText)]


class Base(DeclarativeBase):
    """Every table of the coordinator."""
