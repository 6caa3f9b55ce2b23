"""The user's own tables, of these tests."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, UniqueConstraint, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    # first, so that it is what PostgreSQL finds violated first
    slug: Mapped[str | None] = mapped_column(unique=True)
    email: Mapped[str | None] = mapped_column(unique=True)
    plan: Mapped[str] = mapped_column(default="free")
    visits: Mapped[int] = mapped_column(server_default="0")
    notes: Mapped[list[Note]] = relationship(back_populates="account")


class Note(Base):
    __tablename__ = "note"
    __table_args__ = (UniqueConstraint("account_id", "title"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"))
    title: Mapped[str]
    account: Mapped[Account] = relationship(back_populates="notes")


class Tag(Base):
    __tablename__ = "tag"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    kind: Mapped[str | None]
    place: Mapped[int | None]
    removed: Mapped[bool] = mapped_column(default=False)


Index("tag_name", Tag.kind, func.lower(Tag.name), unique=True)
Index("tag_place", Tag.place, unique=True, postgresql_where=~Tag.removed)


class Job(Base):
    __tablename__ = "job"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")
    account_id: Mapped[int | None] = mapped_column(ForeignKey("account.id"))
    account: Mapped[Account | None] = relationship()
    steps: Mapped[list[Step]] = relationship()


class Step(Base):
    __tablename__ = "step"
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"))
