# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM built from source for the cluster's GPUs: whether to build, how, the wheel and its GPU code.

Entry: choice.choose decides for a cluster, plan.unit returns the command of the build's unit.
"""
