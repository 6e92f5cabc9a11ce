package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/sysinfo"
)

// Row is the complete result of one step: a line of rows.jsonl.
type Row struct {
	Key     string          `json:"key"`
	Trial   int             `json:"trial"`
	Case    Case            `json:"case"`
	At      time.Time       `json:"at"`
	Seconds float64         `json:"seconds"` // the duration of the process
	Program sysinfo.Program `json:"program"`
	Host    sysinfo.Host    `json:"host"`
	// Target is embedded, a cluster of this machine's processes, or a given cluster.
	Target  string   `json:"target"`
	Command []string `json:"command"`
	// Failed says why there is no result.
	Failed string `json:"failed,omitempty"`
	// One of these is set, depending on the case.
	Bench *driver.Report `json:"bench,omitempty"`
	Log   *LogReport     `json:"log,omitempty"`
	Check *Answer        `json:"check,omitempty"`
	// Timeline belongs to Bench, for kind timeline.
	Timeline []driver.Moment `json:"timeline,omitempty"`
}

// LogReport is what tailrace log bench latency prints, in µs.
type LogReport struct {
	Size       int64   `json:"size"`
	Rate       float64 `json:"rate"`
	Count      int64   `json:"count"`
	AckP50     int64   `json:"acked_p50_us"`
	AckP99     int64   `json:"acked_p99_us"`
	DeliverP50 int64   `json:"delivered_p50_us"`
	DeliverP90 int64   `json:"delivered_p90_us"`
	DeliverP99 int64   `json:"delivered_p99_us"`
	DeliverMax int64   `json:"delivered_max_us"`
}

// Answer is the outcome of a check.
type Answer struct {
	Rows   int    `json:"rows"`
	Digest string `json:"sha256"` // of the rows, sorted; of a changelog, the last of each key
	Right  bool   `json:"right"`  // it equals the oracle's
	// Difference says where it differs.
	Difference string `json:"difference,omitempty"`
}

// ReadRows reads a file of rows; it returns none if there is no file. The last line may be
// incomplete because a process was killed: whole is the length of the file without it.
func ReadRows(path string) (rows []*Row, whole int64, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		r := new(Row)
		err := d.Decode(r)
		if errors.Is(err, io.EOF) {
			return rows, int64(len(text)), nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: row %d: %w; mend the line, or remove it to have it measured again", path, len(rows)+1, err)
		}
		rows = append(rows, r)
	}
}

// byKey returns the newest row of each step.
func byKey(rows []*Row) map[string]*Row {
	m := make(map[string]*Row, len(rows))
	for _, r := range rows {
		m[r.Key] = r
	}
	return m
}
