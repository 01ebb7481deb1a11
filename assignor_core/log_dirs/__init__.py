"""Movements within a broker: which replicas go to another of its log dirs, and the plan of them.

Owns the three reasons for such movements: a log dir above its fill level, log dirs that are filled unevenly, a log dir
that is to be emptied. How a plan is carried out is `assignor_core.execution`'s.
"""
