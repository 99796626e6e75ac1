"""Descriptors that observe attributes and methods of other classes, without a frame of ours in tracebacks.

Standard library only, Python 3.7 or newer.
"""

import sys


class Attribute:
    """An attribute that calls ``read`` and ``written`` with the frame that reads or writes it, and the instance.

    ``within``: of reads, only those in the function of this name count. After an error of ours neither is called again.
    """

    def __init__(self, name, read=None, written=None, within=None):
        self.name = name
        self.read = read
        self.written = written
        self.within = within

    def __get__(self, instance, owner=None):
        try:
            value = instance.__dict__[self.name]
        except (AttributeError, KeyError):  # also of the class, which has no such attribute of its own
            raise AttributeError(self.name) from None
        if self.read is not None:
            frame = sys._getframe(1)
            if self.within is None or frame.f_code.co_name == self.within:
                self._call(self.read, frame, instance)
        return value

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value
        if self.written is not None:
            self._call(self.written, sys._getframe(1), instance)

    def __delete__(self, instance):
        instance.__dict__.pop(self.name, None)

    def _call(self, observe, frame, instance):
        try:
            observe(frame, instance)
        except Exception:  # another version of the framework: our errors must not disturb the program
            self.read = self.written = None


class Method:
    """A method that calls ``observe`` with its instance each time that it is called. After an error of ours no more."""

    def __init__(self, original, observe):
        self.original = original
        self.observe = observe

    def __get__(self, instance, owner=None):
        if instance is not None and self.observe is not None:
            try:
                self.observe(instance)
            except Exception:  # our errors must not disturb the program
                self.observe = None
        return self.original.__get__(instance, owner)
