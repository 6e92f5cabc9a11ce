package mem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logtest"
	"tailrace.dev/tailrace/sharedlog/mem"
)

func TestConformance(t *testing.T) {
	logtest.Run(t, logtest.Factory{
		Open: func(testing.TB) sharedlog.Log { return mem.New(mem.Options{}) },
		Reopen: func(t testing.TB, log sharedlog.Log) sharedlog.Log {
			require.NoError(t, log.Close())
			log.(*mem.Log).Reopen()
			return log
		},
	})
}
