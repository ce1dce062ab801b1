# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metrics of a node, and rules, scrape configuration and dashboard for a Prometheus. Private to this collection.

Entry: plan.of_node for the nodes, plan.of_controller for the files of Prometheus and Grafana. io_metrics runs on nodes.
"""
