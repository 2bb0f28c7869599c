from natsd.jetstream.scheduler import Actor

class Admission(Actor):
    def close(self) -> None: ...
