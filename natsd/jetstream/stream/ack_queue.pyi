class AckQueue:
    count: int
