#!/usr/bin/env bash
# Training on a bare machine with an accelerator, torch and no network, in short commands whose files come back in parts.
#
#   here:   experiments/gpu_run.sh pack NAME [STATE]   wheels, networks, and what NAME.toml needs once, into carry/
#   there:  experiments/gpu_run.sh train NAME MINUTES  goes on with the run; logs and best weights (bf16) into $OUT
#   there:  experiments/gpu_run.sh evaluate NAME SPLIT CASES        results of the best weights into $OUT
#   there:  experiments/gpu_run.sh state NAME K        parts 4K to 4K+3 of the checkpoint into $OUT, until there are none
#   here:   experiments/gpu_run.sh join NAME FOLDER    best weights out of FOLDER, where files of $OUT came back
#
# carry/ is not part of the repository: the machine gets it beside the working tree (at most 64 MiB together). A command
# ends well inside MINUTES + 2; what is under $OUT is at most 8 files of 16 MiB. To go on another day, put all parts of the
# checkpoint and state.json into one folder and pass it to pack as STATE.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?pack, train, evaluate, state or join} name=${2:?name of experiments/NAME.toml}
run=out/$name python=${PYTHON:-python3}

unpack() {  # what was carried, once per machine
    if [ ! -d carry/site ]; then
        mkdir -p carry/site "$run"
        tar -xJf carry/site.tar.xz -C carry/site
        "$python" carry/shared/unpack networks
        cp -rn carry/run/. "$run/"
    fi
    export PYTHONPATH="$PWD:$PWD/carry/site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
}

case $what in
pack)
    rm -rf carry && mkdir -p carry/wheels carry/site carry/shared/networks carry/run
    # What the machine lacks, for its Python 3.12, in the versions that are pinned.
    for wheel in dss-python dss-python-backend altdss cffi cyclopts docstring-parser rich-rst attrs rustworkx pvlib pycparser \
        requests urllib3 idna certifi; do
        grep -E "^$wheel==" requirements.lock | cut -d' ' -f1
    done > carry/wheels.txt
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --python-version 3.12 --platform manylinux2014_x86_64 --dest carry/wheels -r carry/wheels.txt
    for wheel in carry/wheels/*.whl; do .venv/bin/python -m zipfile -e "$wheel" carry/site; done
    rm -rf carry/site/pvlib/data carry/site/pvlib/tests  # weather of other places
    rm -f carry/site/dss_python_backend/_dss_capid* carry/site/dss_python_backend.libs/libdss_capid*  # for debugging
    tar -cJf carry/site.tar.xz -C carry/site . && rm -rf carry/site carry/wheels carry/wheels.txt
    grep -qsx /carry/ .git/info/exclude || { mkdir -p .git/info; echo /carry/ >> .git/info/exclude; }
    mkdir -p carry/shared/profiles && cp ../shared/profiles/smartds_* carry/shared/profiles/ && cp ../shared/unpack carry/shared/
    for archive in ../shared/networks/*.tar.xz; do  # not the benchmark's, and not one that is large and a single feeder
        case $(basename "$archive" .tar.xz) in
        iowa240 | es_oviedo | nl_eindhoven | fr_roseau | csiro_au_mvlv | oedi_ieee123) ;;
        *) cp "$archive" carry/shared/networks/ ;;
        esac
    done
    [ -d networks/networks ] || ../shared/unpack networks
    .venv/bin/mycelium train "experiments/$name.toml" --out "$run" --prepare
    cp "$run"/networks.json "$run"/normalisation.json carry/run/
    if [ -n "${3:-}" ]; then mkdir -p carry/run/state && cp -r "$3" carry/run/state/; fi
    size=$(($(git ls-files -z | xargs -0 du -cb | tail -n 1 | cut -f1) + $(du -sb carry | cut -f1)))
    echo "$((size >> 20)) MiB travel, the repository included"
    if [ "$size" -ge $((64 << 20)) ]; then echo "more than 64 MiB: carry less" >&2; exit 1; fi
    ;;
train)
    unpack
    "$python" -m mycelium.cli train "experiments/$name.toml" --out "$run" --minutes "${3:?minutes}" 2>&1 | tee "$OUT/train.log"
    tar -czf "$OUT/logs.tar.gz" -C "$run" --exclude state --exclude best --exclude last .
    if [ -d "$run/best" ]; then
        "$python" - "$run/best" "$run/best-bf16" <<'PYTHON'
import sys

import torch

from mycelium import Mycelium

Mycelium.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2], torch.bfloat16)
PYTHON
        tar -cf - -C "$run" best-bf16 | split -b 15m - "$OUT/best.tar."
    fi
    ;;
evaluate)
    unpack
    "$python" -m mycelium.cli evaluate --weights "$run/best" --catalogue experiments/reference-networks.toml \
        --split "${3:?split}" --cases "${4:?cases}" --workers 15 --half --label "$name" --json "$OUT/$name-$3.json"
    ;;
state)
    folder=$(ls -d "$run"/state/*/ | tail -1)
    cp "$folder/state.json" "$OUT/"
    ls "$folder"part-*.safetensors | tail -n "+$((4 * ${3:?group} + 1))" | head -4 | xargs -r -I{} cp {} "$OUT/"
    basename "$folder"
    ;;
join)
    mkdir -p "$run" && cat "${3:?folder}"/best.tar.* | tar -xf - -C "$run"
    .venv/bin/python -c "import sys; from mycelium import Mycelium; Mycelium.from_pretrained(sys.argv[1])" "$run/best-bf16"
    echo "$run/best-bf16"
    ;;
*)
    echo "unknown: $what" >&2; exit 1
    ;;
esac
