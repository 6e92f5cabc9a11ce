package worker

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"tailrace.dev/tailrace/operators/exec"
)

// userMetrics exports the metrics of the jobs' own functions: tailrace_user_NAME, with job, stage
// and task before the labels of their own.
type userMetrics struct{ w *worker }

func (userMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It leaves out a metric whose labels Prometheus does not
// accept.
func (u userMetrics) Collect(out chan<- prometheus.Metric) {
	for _, ts := range u.w.status().Tasks {
		t := &ts.Status
		at := []string{ts.Report.Job, t.Stage, strconv.Itoa(t.Task)}
		for name, n := range t.Counters {
			v := exec.MetricValue{Kind: "counter", Name: name + "_total", Value: float64(n)}
			send(out, &v, at)
		}
		for i := range t.Metrics {
			send(out, &t.Metrics[i], at)
		}
	}
}

func send(out chan<- prometheus.Metric, v *exec.MetricValue, at []string) {
	labels := []string{"job", "stage", "task"}
	for _, l := range v.Labels {
		labels = append(labels, "user_"+metricName(l))
	}
	desc := prometheus.NewDesc("tailrace_user_"+metricName(v.Name), "made by a function of the job", labels, nil)
	values := append(append([]string(nil), at...), v.Values...)
	for i, s := range values {
		values[i] = strings.ToValidUTF8(s, "�")
	}
	var m prometheus.Metric
	var err error
	switch v.Kind {
	case "histogram":
		sum, buckets := uint64(0), map[float64]uint64{}
		for i, bound := range v.Bounds {
			sum += v.Counts[i]
			buckets[bound] = sum
		}
		m, err = prometheus.NewConstHistogram(desc, v.Count, v.Sum, buckets, values...)
	case "counter":
		m, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, v.Value, values...)
	default:
		m, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, v.Value, values...)
	}
	if err == nil {
		out <- m
	}
}

// metricName turns a name into one that Prometheus accepts.
func metricName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '_'
	}, s)
}
