# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decisions of the roles, each in a file of its name: from the plan and registered results, on the controller.

Entry: ``Inputs``, a dataclass of the task's inputs, and ``run(step, given, variables)``. It returns the task's result;
its docstring describes it. ``TRUSTED = False`` and ``PLANNED = False`` set the attributes of Decision.
"""
