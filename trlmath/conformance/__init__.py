"""The conformance suite: properties that every component of a kind must have, with counterexamples."""

from trlmath.conformance.core import Broken, Result
from trlmath.conformance.subject import Subject, subjects_of_plugin
from trlmath.conformance.suite import Report, check_subjects

__all__ = ["Broken", "Report", "Result", "Subject", "check_subjects", "subjects_of_plugin"]
