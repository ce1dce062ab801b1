# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launch configuration of each node: argv, environment and containers of Ray and vLLM. Private to this collection.

Entry: argv. io_ray and io_rank run on the nodes, without Ansible.
"""
