# SPDX-License-Identifier: Apache-2.0
"""A check of ReFrame: training on ranks, right, and how well it scales. Everything is read from the result file."""
import json
import pathlib

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, run_before, sanity_function, variable


@rfm.simple_test
class GradmeterScale(rfm.RunOnlyRegressionTest):
    """`gradmeter scale` of a small network: synchronous training against the same ranks without any exchange."""

    descr = "scaling of data-parallel training"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    program = variable(str, value="gradmeter")
    ranks = variable(int, value=2)
    batch = variable(int, value=64)
    time_budget = variable(str, value="20s")
    out = "result.jsonl"

    @run_before("run")
    def command(self):
        self.executable = self.program
        self.num_tasks = self.ranks
        self.executable_opts = ["scale", "--batch", str(self.batch), "--ranks", f"1,{self.ranks}", "--strategy", "independent,sync",
                                "--time-budget", self.time_budget, "--out", self.out]

    def points(self):
        """Of the stage folder's file, without lines of other kinds."""
        lines = (pathlib.Path(self.stagedir) / self.out).read_text(encoding="utf-8").splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == "point"]

    def trained(self):
        """The row of synchronous training on all ranks by the first algorithm."""
        return next(p for p in self.points() if p["factors"]["strategy"] == "sync" and p["factors"]["ranks"] == self.ranks)

    @sanity_function
    def every_point_is_right(self):
        """`ok` means that each exchange was compared with the right sum."""
        wrong = [f"{p['status']}: {p['reason']}" for p in self.points() if p["status"] != "ok"]
        ranks = {p["factors"]["ranks"] for p in self.points()}
        return sn.all([sn.assert_eq(wrong, [], f"{self.out}: points that are not ok: {wrong}"),
                       sn.assert_eq(ranks, {1, self.ranks}, f"{self.out}: ranks measured: {ranks}")])

    @performance_function("%")
    def efficiency(self):
        return 100 * self.trained()["metrics"]["efficiency"]

    @performance_function("ms")
    def step(self):
        return 1000 * self.trained()["metrics"]["time_s"]["median"]

    @performance_function("samples/s")
    def rate(self):
        return self.ranks * self.batch / self.trained()["metrics"]["time_s"]["median"]
