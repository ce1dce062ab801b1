# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan how a model is served: parallelism, vLLM's arguments and environment, with reasons. Private to this collection.

Entry: plan.decide. Memory, split and origin of options have own modules.
"""
