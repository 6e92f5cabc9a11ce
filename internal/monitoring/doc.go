// Package monitoring checks what scripts/monitoring has for Prometheus and Grafana:
// rules.yaml (alerts), rules_test.yaml (series under which each alert fires, and does
// not), board.json (a Grafana board), prometheus.yaml (an example of scraping) and
// metrics.txt (every metric of every process). Tests that have real processes compare
// what those serve at /metrics with the list; the rules and the board use names of the
// list only.
package monitoring
