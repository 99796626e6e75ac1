"""Attributes of a framework's classes whose reads or writes are seen, without a frame of ours in tracebacks.

Standard library only, Python 3.7 or newer.
"""

import sys


class Attribute:
    """A descriptor that calls ``read`` and ``written`` with the frame that reads or writes, and the instance.

    ``within``: only what the function of this name reads is told. After an error of ours nothing more is told.
    """

    def __init__(self, name, read=None, written=None, within=None):
        self.name = name
        self.read = read
        self.written = written
        self.within = within

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        try:
            value = instance.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None
        if self.read is not None:
            frame = sys._getframe(1)
            if self.within is None or frame.f_code.co_name == self.within:
                self._tell(self.read, frame, instance)
        return value

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value
        if self.written is not None:
            self._tell(self.written, sys._getframe(1), instance)

    def __delete__(self, instance):
        instance.__dict__.pop(self.name, None)

    def _tell(self, see, frame, instance):
        try:
            see(frame, instance)
        except Exception:  # another version of the framework: our errors must not disturb the program
            self.read = self.written = None
