"""What a worker does: simulates the cases of a unit and stores them, its record last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mycelium.corpus.files import Written, whole, write_whole
from mycelium.corpus.labels import Record, case_labels, fault_of, fault_record
from mycelium.corpus.layout import UnitRecord, grid_name, placement_name, shard_name, unit_name
from mycelium.corpus.plan import Unit, stratum
from mycelium.corpus.shard import Shard, shard_bytes
from mycelium.errors import FeederError
from mycelium.schema import FaultPlace
from mycelium.sense.placement import place
from mycelium.sense.policies import POLICIES
from mycelium.simulate.cases import Case, CaseMix
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network


class UnitFailed(Exception):
    """A network cannot be imported, or something is wrong that is no property of one case: the message says what."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What an earlier build stored of a unit: of a smaller plan, or with a damaged file.

    Attributes:
        records, days: By case number.
        numbers: Cases in each shard that is what was written.
        files: Every file of the earlier record.
    """

    records: dict[int, Record]
    days: dict[int, Day]
    numbers: dict[str, list[int]]
    files: Mapping[str, Written]


class UnitBuilder:
    """Builds units one after the other; holds the last network compiled, for its next unit.

    Attributes:
        folder: The corpus.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._network: Network | None = None
        self._of = ""
        self._grids: dict[int, Written] = {}
        self._placements: dict[str, Written] = {}

    def build(self, unit: Unit) -> UnitRecord:
        """Build a unit; what an earlier build stored of it is kept.

        Raises:
            UnitFailed: none of it can be simulated.
            OSError: something cannot be written.
        """
        kept = self._kept(unit)
        records, days = dict(kept.records), dict(kept.days)
        network = self._open(unit)
        for number in unit.numbers:
            if number not in records:
                records[number], day = self._case(network, unit, number)
                if day is not None:
                    days[number] = day
                network = self._open(unit)
        files: dict[str, Written] = {}
        for variant in sorted({0} | {day.variant for day in days.values()}):
            files[grid_name(unit.network, variant)] = self._grid(network, variant)
            numbers = [number for number in sorted(days) if days[number].variant == variant]
            name = shard_name(unit.network, variant, unit.chunk)
            if numbers and numbers == kept.numbers.get(name):
                files[name] = kept.files[name]
            elif numbers:
                files[name] = write_whole(self.folder / name, shard_bytes([days[number] for number in numbers]))
        files |= self._placed(network)
        record = UnitRecord(unit.network, unit.chunk, "", [records[number] for number in unit.numbers], files)
        record.write(self.folder, unit_name(unit))
        return record

    def close(self) -> None:
        """Free the network that is compiled."""
        if self._network is not None:
            self._network.close()
        self._network, self._of = None, ""
        self._grids, self._placements = {}, {}

    # ---- networks ----------------------------------------------------------------------------------------------

    def _open(self, unit: Unit) -> Network:
        if self._of != unit.network:
            self.close()
        if self._network is None:
            try:
                self._network, self._of = Network(unit.source, CaseMix()), unit.network
            except Exception as error:  # whatever is wrong with a stranger's model, the others go on
                self.close()
                raise UnitFailed(f"import: {_reason(error, unit)}") from error
        return self._network

    def _grid(self, network: Network, variant: int) -> Written:
        """Store the records of a variant, once per network."""
        if variant not in self._grids:
            path = self.folder / grid_name(network.name, variant)
            if not path.exists():
                with whole(path) as part:
                    network.circuit(variant).grid.save(part)
            self._grids[variant] = Written.of(path)
        return self._grids[variant]

    def _placed(self, network: Network) -> Mapping[str, Written]:
        """Place the sensors of every policy, once per network."""
        if not self._placements:
            for policy in POLICIES.values():
                name = placement_name(network.name, policy.name)
                if not (self.folder / name).exists():
                    with whole(self.folder / name) as part:
                        place(network.published.grid, policy, network.name).save(part)
                self._placements[name] = Written.of(self.folder / name)
        return self._placements

    # ---- cases -------------------------------------------------------------------------------------------------

    def _kept(self, unit: Unit) -> _Kept:
        old = UnitRecord.read(self.folder / unit_name(unit))
        if old is None or old.failed:
            return _Kept({}, {}, {}, {})
        kept = _Kept({}, {}, {}, old.files)
        shards: dict[str, Shard] = {}
        for record in old.cases:
            if record["number"] not in unit.numbers:
                continue
            if record["status"] == "done":
                name = shard_name(unit.network, record["variant"], unit.chunk)
                path = self.folder / name
                if name not in shards:
                    if not path.is_file() or Written.of(path) != old.files.get(name):
                        continue
                    shards[name] = Shard.open(path)
                    kept.numbers[name] = shards[name].numbers.tolist()
                kept.days[record["number"]] = stored_day(shards[name], unit.network, unit.seed, record)
            kept.records[record["number"]] = record
        return kept

    def _case(self, network: Network, unit: Unit, number: int) -> tuple[Record, Day | None]:
        """Draw and solve a case; its record, and its day if it can be a sample."""
        wanted = stratum(unit.network, unit.seed, number)
        record: Record = {"number": number, "stratum": str(wanted)}
        try:
            case = network.draw(unit.seed, number, wanted.mix)
            record |= _drawn(case, network)
            day = network.circuit(case.variant).solve(case)
        except Rejection as reason:
            return record | {"status": "rejected", "reason": str(reason)}, None
        except MemoryError as error:
            raise UnitFailed("out of memory") from error
        except Exception as error:  # a bug, or a variant that cannot be imported: recorded, and what it left dropped
            self.close()
            return record | {"status": "rejected", "reason": _reason(error, unit)}, None
        return record | {"status": "done", "solver": day.solver}, day


def stored_day(shard: Shard, network: str, seed: int, record: Record) -> Day:
    """The day of a case's record, its arrays views into the shard."""
    row = int((shard.numbers == record["number"]).argmax())
    return shard.day(
        row,
        fault_of(record),
        network=network,
        seed=seed,
        number=int(record["number"]),
        variant=int(record["variant"]),
        day_of_year=int(record["day_of_year"]),
        solver=str(record["solver"]),
    )


def failed_record(unit: Unit, reason: str) -> UnitRecord:
    """Record of a unit of which nothing could be simulated."""
    cases: list[Record] = [
        {
            "number": number,
            "stratum": str(stratum(unit.network, unit.seed, number)),
            "status": "rejected",
            "reason": reason,
        }
        for number in unit.numbers
    ]
    return UnitRecord(unit.network, unit.chunk, reason, cases, {})


def _drawn(case: Case, network: Network) -> Record:
    """What a list of cases says of one that is drawn."""
    grid = network.circuit(case.variant).grid
    record: Record = {
        "variant": case.variant,
        "ties": int(grid.line["tie"].sum()),
        "day_of_year": case.profile.day_of_year,
        "phases_changed": case.phases_changed,
        "switching": case.switching.value,
        "switches_open": int(case.configuration.switch_open.sum()),
        "energised_share": round(float(case.energised.mean()), 6) if len(case.energised) else 0.0,
        "labels": case_labels(case),
    }
    if case.fault is not None:
        table = grid.tables[FaultPlace(case.fault.place).value]
        record |= {**fault_record(case.fault), "fault_name": str(table["name"].iat[case.fault.element])}
    return record


def _reason(error: Exception, unit: Unit) -> str:
    """What went wrong, without paths of this machine."""
    text = str(error) if isinstance(error, FeederError) else f"{type(error).__name__}: {error}"
    root = unit.source.root or unit.source.master.parent
    return text.replace(f"{root}{os.sep}", "")
