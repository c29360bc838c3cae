"""The plain twin of EASY followed on line, as `cpdispatch.compiled.shadow` describes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Followed:
    submit: int
    need: int
    requested: int
    lasts: int
    """What its runtime is taken to be."""
    known: bool = False
    real: int = -1
    """When it started in reality."""
    start: int = -1
    stop: int = -1


class PlainShadow:
    """EASY on a pool of so many processors."""

    def __init__(self, processors: int) -> None:
        self.free = processors
        self.asked = 3600 * processors
        self.worked = int(0.3 * self.asked)
        self.jobs: dict[int, Followed] = {}
        self.queue: list[Followed] = []
        self.new: list[Followed] = []
        """Jobs that queue from the time up to which is followed next."""
        self.running: list[Followed] = []
        self.now = self.longest = 0

    def submit(self, name: int, submit: int, need: int, requested: int) -> None:
        self.jobs[name] = Followed(submit, need, requested, requested)
        self.new.append(self.jobs[name])

    def starts(self, name: int, start: int) -> None:
        self.jobs[name].real = start

    def ends(self, name: int, runtime: int) -> None:
        job = self.jobs[name]
        self.worked += job.need * runtime
        self.asked += job.need * job.requested
        self.withdraw(name, runtime)

    def withdraw(self, name: int, runtime: int = 1) -> None:
        job = self.jobs[name]
        if job in self.running and runtime < job.lasts:
            job.stop = max(job.start + runtime, self.now)
        job.known, job.lasts = True, runtime

    def follow(self, until: int, running: int) -> int:
        """Go on; the jobs that run in reality have worked so many processor seconds so far."""
        share = min(1.0, (self.worked + running) / self.asked) ** 0.5
        while True:
            self.now = min([job.stop for job in self.running] + [until])
            ends = [job for job in self.running if job.stop <= self.now]
            ended = [self._stop(job, until) for job in ends]
            if self.now == until:
                for job in self.new:
                    if not job.known:
                        job.lasts = max(1, int(job.requested * share))
                self.queue += self.new
                self.new = []
            if any(ended) or self.now == until:
                self._dispatch()
            if self.now == until:
                break
        self.longest = max([self.longest] + [until - job.submit for job in self.queue[:1]])
        return self.longest

    def _stop(self, job: Followed, until: int) -> bool:
        """Whether it ends here; it runs on if it runs for longer in reality."""
        ran, longer = self.now - job.start, 0
        if job.known:
            longer = job.lasts
        elif job.real >= 0 and until - job.real >= ran:
            real = until - job.real
            longer = max(min(2 * real, job.requested), real + 1)
        if longer > ran:
            job.lasts, job.stop = longer, job.start + longer
            return False
        self.running.remove(job)
        self.free += job.need
        return True

    def _dispatch(self) -> None:
        while self.queue and self.queue[0].need <= self.free:
            self._start(self.queue[0])
        if not self.queue:
            return
        head, free, shadow, extra = self.queue[0], self.free, -1, 0
        due = [(max(job.start + job.requested, self.now + 1), job.need) for job in self.running]
        for time in sorted({time for time, _ in due}):
            free += sum(need for end, need in due if end == time)
            if free >= head.need:
                shadow, extra = time, free - head.need
                break
        for job in self.queue[1:]:
            if job.need > self.free:
                continue
            if self.now + job.requested > shadow:
                if job.need > extra:
                    continue
                extra -= job.need
            self._start(job)

    def _start(self, job: Followed) -> None:
        self.queue = [other for other in self.queue if other is not job]
        job.start, job.stop = self.now, self.now + job.lasts
        self.running.append(job)
        self.free -= job.need
        self.longest = max(self.longest, self.now - job.submit)
