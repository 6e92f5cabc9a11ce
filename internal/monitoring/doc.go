// Package monitoring checks the files for Prometheus and Grafana in scripts/monitoring: rules.yaml
// (alerts), rules_test.yaml (series for which each alert fires, and for which it does not),
// board.json (a Grafana board), prometheus.yaml (an example of scraping) and metrics.txt (every
// metric of every process). Tests with real processes compare what those serve at /metrics with
// metrics.txt; the rules and the board may use only its names.
package monitoring
