"""The numbers of the paper's tables, as it prints them.

One section per table, split, network and policy; one line per method; values in the order of ``metrics.PAPER``, "-"
where the paper has none. ``tables`` puts ours beside them. Run times are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mycelium.evaluate.metrics import PAPER

TITLES = {
    "baselines": "Mycelium and task-specific neural baselines",
    "communication": "Communication edges: none, random, as proposed",
    "angle_reference": "Without nominal angles",
    "synthetic": "Synthetic networks added to the reference networks",
    "size_cap": "Largest training network",
    "single_task": "Joint against single-task training",
    "network": "Networks",
    "policy": "Sensor policies",
    "phase_matching": "Phase attribution by correlation",
    "wls": "Weighted least squares with oracle information",
}
REFERENCE = "Mycelium 10k"  # the configuration that every table has


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One method in one place of one table.

    Attributes:
        table: Name in ``TITLES``.
        split: test or benchmark.
        network: A network's name there, "pooled" or "macro".
        policy: Name of ours, or "all".
        label: The method.
        values: By metric, as printed.
    """

    table: str
    split: str
    network: str
    policy: str
    label: str
    values: Mapping[str, str]


def paper_rows() -> tuple[PaperRow, ...]:
    """All rows, in the paper's order."""
    return tuple(_parsed(_TEXT))


def _parsed(text: str) -> Iterator[PaperRow]:
    table = split = network = policy = ""
    for line in text.strip().splitlines():
        if line.startswith("["):
            table, split, network, policy = line.strip("[]").split()
            continue
        label, _, values = line.partition(" | ")
        found = {name: value for name, value in zip(PAPER, values.split(), strict=False) if value != "-"}
        yield PaperRow(table, split, network, policy, label.strip(), found)


_TEXT = """
[baselines test pooled all]
CANOS                | 0.00221 2.86 0.576 0.136
GraphSAGE-CPI        | - - - - 0.3276
DGS-GNN              | - - - - - 0.0807 0.2399 0.1207
STGATv2              | - - - - - - - - - - 0.1349 0.2162 0.2683 0.3107
Mycelium 10k         | 0.00345 5.99 1.107 0.234 0.5713 0.9960 0.8137 0.8957 1.0000 0.4840 0.1710 0.2369 0.2999 0.3314
[baselines benchmark pooled all]
CANOS                | 0.01754 9.50 3.254 5.591
GraphSAGE-CPI        | - - - - 0.3369
DGS-GNN              | - - - - - 0.4737 0.4114 0.4404
STGATv2              | - - - - - - - - - - 0.1177 0.1772 0.1825 0.2262
Mycelium 10k         | 0.01267 81.28 1.635 5.425 0.4001 0.9553 0.7198 0.8210 1.0000 0.7209 0.1958 0.3175 0.3558 0.4114
[communication test pooled all]
No communication     | 0.00370 4.99 1.286 0.240 0.6611 0.1950 0.9800 0.3253 1.0000 0.4540 0.1819 0.2743 0.3464 0.3822
Random communication | 0.00316 5.24 1.083 0.230 0.6328 0.9631 0.9056 0.9334 1.0000 0.4241 0.1881 0.2628 0.3267 0.3583
Mycelium 10k         | 0.00345 5.99 1.107 0.234 0.5713 0.9960 0.8137 0.8957 1.0000 0.4840 0.1710 0.2369 0.2999 0.3314
[communication benchmark pooled all]
No communication     | 0.01866 77.46 1.639 5.955 0.4256 0.7945 0.9968 0.8842 1.0000 0.7143 0.1878 0.2950 0.3492 0.4034
Random communication | 0.01805 78.24 1.543 5.773 0.4231 0.8721 0.9910 0.9278 0.9993 0.6468 0.1971 0.2857 0.3135 0.3810
Mycelium 10k         | 0.01267 81.28 1.635 5.425 0.4001 0.9553 0.7198 0.8210 1.0000 0.7209 0.1958 0.3175 0.3558 0.4114
[angle_reference test pooled all]
No angle reference   | 0.00333 5.02 16.461 0.239 0.6272 0.9914 0.8939 0.9401 1.0000 0.4970 0.1774 0.2484 0.3190 0.3497
Mycelium 10k         | 0.00345 5.99 1.107 0.234 0.5713 0.9960 0.8137 0.8957 1.0000 0.4840 0.1710 0.2369 0.2999 0.3314
[angle_reference benchmark pooled all]
No angle reference   | 0.01054 73.97 24.896 5.265 0.4203 0.8193 0.9738 0.8899 1.0000 0.7011 0.1786 0.2804 0.3360 0.3968
Mycelium 10k         | 0.01267 81.28 1.635 5.425 0.4001 0.9553 0.7198 0.8210 1.0000 0.7209 0.1958 0.3175 0.3558 0.4114
[synthetic test pooled all]
Reference only       | 0.00881 7.63 0.933 0.320 0.5846 0.9992 0.9178 0.9568 1.0000 0.3455 0.1526 0.2305 0.2899 0.3249
+25 % synthetic      | 0.00302 4.45 1.116 0.197 0.5922 0.9806 0.9542 0.9672 1.0000 0.4708 0.1839 0.2820 0.3437 0.3721
Mycelium 10k         | 0.00345 5.99 1.107 0.234 0.5713 0.9960 0.8137 0.8957 1.0000 0.4840 0.1710 0.2369 0.2999 0.3314
[synthetic benchmark pooled all]
Reference only       | 0.04025 148.88 2.388 7.714 0.3539 0.9445 0.9946 0.9689 1.0000 0.2937 0.1323 0.1799 0.2249 0.3016
+25 % synthetic      | 0.01991 141.51 1.134 5.669 0.3886 0.9585 0.9958 0.9768 1.0000 0.6111 0.1429 0.2156 0.2500 0.3056
Mycelium 10k         | 0.01267 81.28 1.635 5.425 0.4001 0.9553 0.7198 0.8210 1.0000 0.7209 0.1958 0.3175 0.3558 0.4114
[size_cap test pooled all]
5,000 buses          | 0.00322 5.21 1.198 0.224 0.5776 0.9716 0.9042 0.9367 1.0000 0.4479 0.1676 0.2501 0.3034 0.3315
20,000 buses         | 0.00393 6.96 0.979 0.289 0.6150 0.9800 0.8848 0.9299 0.9996 0.5837 0.1918 0.2793 0.3524 0.3947
Mycelium 10k         | 0.00345 5.99 1.107 0.234 0.5713 0.9960 0.8137 0.8957 1.0000 0.4840 0.1710 0.2369 0.2999 0.3314
[size_cap benchmark pooled all]
5,000 buses          | 0.00963 73.11 1.071 5.177 0.4234 0.9503 0.9934 0.9713 1.0000 0.6852 0.1799 0.3016 0.3267 0.3955
20,000 buses         | 0.01063 75.72 1.456 5.332 0.4387 0.9258 0.5574 0.6959 0.9980 0.7063 0.1971 0.2897 0.3399 0.4008
Mycelium 10k         | 0.01267 81.28 1.635 5.425 0.4001 0.9553 0.7198 0.8210 1.0000 0.7209 0.1958 0.3175 0.3558 0.4114
[single_task test pooled all]
SE only              | 0.00148 3.33 1.057 0.148
Phase only           | - - - - 0.5363
Switch only          | - - - - - 0.8325 0.9374 0.8818
Fault only           | - - - - - - - - 0.7990 0.5322 0.1927 0.2731 0.3441 0.3768
Mycelium 10k         | 0.00345 5.99 1.107 0.234 0.5713 0.9960 0.8137 0.8957 1.0000 0.4840 0.1710 0.2369 0.2999 0.3314
[single_task benchmark pooled all]
SE only              | 0.07072 21.51 7.038 12.067
Phase only           | - - - - 0.3683
Switch only          | - - - - - 0.7870 0.9961 0.8793
Fault only           | - - - - - - - - 0.8405 0.6746 0.2169 0.3188 0.3320 0.3889
Mycelium 10k         | 0.01267 81.28 1.635 5.425 0.4001 0.9553 0.7198 0.8210 1.0000 0.7209 0.1958 0.3175 0.3558 0.4114
[network benchmark 240_bus all]
Mycelium 10k         | 0.0039 18.26 0.870 0.63 - - - - 1.000 0.6667 0.3122 0.4550 0.4815 0.5450
[network benchmark 296_bus all]
Mycelium 10k         | 0.0034 18.32 0.742 0.76 - - - - 1.000 0.7884 0.1164 0.2698 0.3069 0.3069
[network benchmark industrial all]
Mycelium 10k         | 0.0097 40.66 1.213 60.92 - 0.9974 0.5955 0.7458 1.000 0.7540 0.2143 0.2381 0.3095 0.3810
[network benchmark rural all]
Mycelium 10k         | 0.0059 2.70 1.286 0.59 0.4898 0.9644 0.9564 0.9604 1.000 0.7831 0.1852 0.3175 0.3333 0.4444
[network benchmark urban all]
Mycelium 10k         | 0.0342 318.20 2.971 1.40 0.3782 0.9777 0.9714 0.9746 1.000 0.4286 0.0794 0.2063 0.2857 0.2857
[network benchmark macro all]
Mycelium 10k         | 0.0114 79.63 1.416 12.86 0.4340 0.9798 0.8411 0.8936 1.000 0.6841 0.1815 0.2974 0.3434 0.3926
[network benchmark pooled all]
Mycelium 10k         | 0.0127 81.28 1.636 5.43 0.4001 0.9553 0.7198 0.8210 1.000 0.7209 0.1958 0.3175 0.3558 0.4114
[network benchmark 240_bus all]
STGATv2              | - - - - - - - - - - 0.159 0.159 0.159 0.159
[network benchmark 296_bus all]
STGATv2              | - - - - - - - - - - 0.005 0.090 0.138 0.201
[network benchmark industrial all]
STGATv2              | - - - - - - - - - - 0.127 0.127 0.127 0.254
[network benchmark rural all]
STGATv2              | - - - - - - - - - - 0.148 0.339 0.344 0.439
[network benchmark urban all]
STGATv2              | - - - - - - - - - - 0.222 0.317 0.317 0.317
[policy benchmark pooled clean]
CANOS                | 0.0017 1.98 0.63 0.35
STGATv2              | - - - - - - - - - - 0.213 0.250 0.269 0.306
Mycelium 10k         | 0.0079 18.71 1.77 5.43 - - - - 1.000 0.704 0.500 0.537 0.583 0.583
[policy benchmark pooled noisy_missing_dense]
CANOS                | 0.0100 6.21 3.83 4.97
STGATv2              | - - - - - - - - - - 0.130 0.213 0.222 0.306
Mycelium 10k         | 0.0145 116.36 1.37 5.31 - - - - 1.000 0.704 0.185 0.315 0.370 0.435
[policy benchmark pooled noisy_missing_medium]
CANOS                | 0.0205 10.24 4.15 6.28
STGATv2              | - - - - - - - - - - 0.130 0.231 0.241 0.296
Mycelium 10k         | 0.0166 135.07 1.32 5.38 - - - - 1.000 0.769 0.185 0.324 0.361 0.417
[policy benchmark pooled noisy_missing_sparse]
CANOS                | 0.0276 12.96 3.66 7.31
STGATv2              | - - - - - - - - - - 0.065 0.157 0.157 0.222
Mycelium 10k         | 0.0186 140.04 1.36 5.58 - - - - 1.000 0.769 0.102 0.259 0.296 0.361
[policy benchmark pooled observability_ami_dense]
CANOS                | 0.0113 8.74 3.53 5.73
STGATv2              | - - - - - - - - - - 0.111 0.194 0.194 0.259
Mycelium 10k         | 0.0063 22.08 1.99 5.25 - - - - 1.000 0.722 0.111 0.213 0.259 0.324
[policy benchmark pooled observability_ami_medium]
CANOS                | 0.0230 12.17 3.50 6.85
STGATv2              | - - - - - - - - - - 0.102 0.176 0.185 0.241
Mycelium 10k         | 0.0080 23.48 2.09 5.40 - - - - 1.000 0.732 0.148 0.315 0.343 0.407
[policy benchmark pooled observability_ami_sparse]
CANOS                | 0.0288 14.21 3.47 7.65
STGATv2              | - - - - - - - - - - 0.074 0.139 0.185 0.250
Mycelium 10k         | 0.0167 113.26 1.56 5.63 - - - - 1.000 0.648 0.139 0.259 0.278 0.352
[policy benchmark pooled all]
CANOS                | 0.0175 9.50 3.25 5.59
Mycelium 10k         | 0.0127 81.28 1.64 5.42
[phase_matching test pooled all]
P matcher            | - - - - 0.5741
[phase_matching benchmark pooled all]
P matcher            | - - - - 0.3999
[phase_matching test pooled all]
P+Q matcher          | - - - - 0.3637
[phase_matching benchmark pooled all]
P+Q matcher          | - - - - 0.4200
[phase_matching test pooled all]
Mycelium 10k         | - - - - 0.5713
[phase_matching benchmark pooled all]
Mycelium 10k         | - - - - 0.4001
[phase_matching test pooled all]
Mycelium 20k         | - - - - 0.6150
[phase_matching benchmark pooled all]
Mycelium 20k         | - - - - 0.4387
[wls benchmark 240_bus noisy_missing_dense]
WLS (oracle)         | 0.0091 34.0 0.63
Mycelium 10k         | 0.0022 10.3 0.67
[wls benchmark 240_bus noisy_missing_medium]
WLS (oracle)         | 0.0029 11.4 0.23
Mycelium 10k         | 0.0026 13.8 0.81
[wls benchmark 240_bus noisy_missing_sparse]
WLS (oracle)         | 0.0049 18.8 0.35
Mycelium 10k         | 0.0028 13.0 0.80
[wls benchmark 240_bus observability_ami_dense]
WLS (oracle)         | 0.0057 21.6 0.40
Mycelium 10k         | 0.0024 12.4 0.76
[wls benchmark 240_bus observability_ami_medium]
WLS (oracle)         | 0.0091 34.0 0.63
Mycelium 10k         | 0.0022 9.9 0.65
[wls benchmark 240_bus observability_ami_sparse]
WLS (oracle)         | 0.0149 78.3 0.62
Mycelium 10k         | 0.0023 10.4 0.66
[wls benchmark 296_bus noisy_missing_dense]
WLS (oracle)         | 0.0183 66.1 1.23
Mycelium 10k         | 0.0020 11.2 0.62
[wls benchmark 296_bus noisy_missing_medium]
WLS (oracle)         | 0.0164 58.7 1.10
Mycelium 10k         | 0.0022 10.1 0.58
[wls benchmark 296_bus noisy_missing_sparse]
WLS (oracle)         | 0.157 36.1 4.08
Mycelium 10k         | 0.0024 11.0 0.67
[wls benchmark 296_bus observability_ami_dense]
WLS (oracle)         | 0.0180 65.7 1.23
Mycelium 10k         | 0.0020 10.5 0.63
[wls benchmark 296_bus observability_ami_medium]
WLS (oracle)         | 0.0183 66.1 1.23
Mycelium 10k         | 0.0021 11.0 0.62
[wls benchmark 296_bus observability_ami_sparse]
WLS (oracle)         | 0.0188 68.4 1.27
Mycelium 10k         | 0.0020 10.4 0.65
[wls benchmark industrial noisy_missing_dense]
WLS (oracle)         | 0.0091 19.6 0.81
Mycelium 10k         | 0.0056 20.7 1.09
[wls benchmark industrial noisy_missing_medium]
WLS (oracle)         | 0.0085 19.8 0.84
Mycelium 10k         | 0.0082 38.6 1.15
[wls benchmark industrial noisy_missing_sparse]
WLS (oracle)         | 0.0044 12.0 0.81
Mycelium 10k         | 0.0129 53.7 1.39
[wls benchmark industrial observability_ami_dense]
WLS (oracle)         | 0.0024 5.8 0.18
Mycelium 10k         | 0.0077 41.5 1.27
[wls benchmark industrial observability_ami_medium]
WLS (oracle)         | 0.0041 7.9 0.28
Mycelium 10k         | 0.0091 49.0 1.28
[wls benchmark industrial observability_ami_sparse]
WLS (oracle)         | 0.0114 66.5 2.77
Mycelium 10k         | 0.0109 57.6 1.32
[wls benchmark rural noisy_missing_dense]
WLS (oracle)         | 0.0049 3.82 0.59
Mycelium 10k         | 0.0056 4.01 1.26
[wls benchmark rural noisy_missing_medium]
WLS (oracle)         | 0.0045 3.72 0.54
Mycelium 10k         | 0.0060 4.09 1.37
[wls benchmark rural noisy_missing_sparse]
WLS (oracle)         | 0.0019 3.12 0.20
Mycelium 10k         | 0.0072 4.37 1.43
[wls benchmark rural observability_ami_dense]
WLS (oracle)         | 0.0049 3.82 0.59
Mycelium 10k         | 0.0044 1.29 1.26
[wls benchmark rural observability_ami_medium]
WLS (oracle)         | 0.0049 3.82 0.60
Mycelium 10k         | 0.0049 1.43 1.36
[wls benchmark rural observability_ami_sparse]
WLS (oracle)         | 0.0049 3.82 0.59
Mycelium 10k         | 0.0070 1.90 1.45
[wls benchmark urban noisy_missing_dense]
WLS (oracle)         | 0.0530 556.4 4.67
Mycelium 10k         | 0.0453 471.6 1.97
[wls benchmark urban noisy_missing_medium]
WLS (oracle)         | 0.0517 556.1 4.59
Mycelium 10k         | 0.0504 543.1 1.45
[wls benchmark urban noisy_missing_sparse]
WLS (oracle)         | 0.0530 556.4 4.67
Mycelium 10k         | 0.0551 557.6 1.50
[wls benchmark urban observability_ami_dense]
WLS (oracle)         | 0.0517 556.1 4.59
Mycelium 10k         | 0.0115 72.4 4.53
[wls benchmark urban observability_ami_medium]
WLS (oracle)         | 0.0530 556.4 4.67
Mycelium 10k         | 0.0169 68.8 4.71
[wls benchmark urban observability_ami_sparse]
WLS (oracle)         | 0.0517 556.1 4.59
Mycelium 10k         | 0.0472 451.1 2.16
"""
