"""What type checkers make of a guard's SQL: drivers that take literal text alone take it. Not run; as in blocks.py."""

import sqlite3
from typing import Any, LiteralString, assert_type

import psycopg
from sqlalchemy import text
from sqlalchemy.orm import Session

import tenure


def create_tables(connection: psycopg.Connection[Any], db: sqlite3.Connection) -> None:
    assert_type(tenure.SqlGuard.create_table(), LiteralString)
    connection.execute(tenure.SqlGuard.create_table())
    connection.execute(tenure.SqlGuard.create_table("app.fences"))
    db.execute(tenure.SqlGuard.create_table())


def psycopg_by_place(connection: psycopg.Connection[Any], guard: tenure.SqlGuard) -> None:
    sql, parameters = guard.statement("format")
    assert_type(parameters, tuple[str, int])
    guard.passed(connection.execute(sql, parameters).fetchone())


async def psycopg_by_name(connection: psycopg.AsyncConnection[Any], guard: tenure.SqlGuard) -> None:
    sql, parameters = guard.statement("pyformat")
    guard.passed(await (await connection.execute(sql, parameters)).fetchone())


def sqlalchemy(session: Session, guard: tenure.SqlGuard) -> None:
    sql, parameters = guard.statement("named")
    guard.passed(session.execute(text(sql), parameters).first())


def blocking(db: sqlite3.Connection, guard: tenure.SqlGuard) -> None:
    sql, parameters = guard.statement("qmark")
    guard.passed(db.execute(sql, parameters).fetchone())


def unknown_style(guard: tenure.SqlGuard, style: str) -> LiteralString:
    return guard.statement(style)[0]
