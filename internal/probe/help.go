package probe

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

//go:embed help.txt
var helpText string

// texts is what help.txt says of each metric, by name.
var texts = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(helpText) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = text
	}
	return all
})

// Help returns what a metric means, in a line; "" if the list has no text for it.
func Help(name string) string { return texts()[name] }

// kind returns the type of a metric: one that only grows, until its process or its task
// begins again, is called so.
func kind(name string) prometheus.ValueType {
	if strings.HasSuffix(name, "_total") {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}
