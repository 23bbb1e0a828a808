package judge

import "testing"

func TestParseServed(t *testing.T) {
	const line = "inference: 412 requests of 20.0 ms in 40.0 s: latency ms p50 20.31 p90 33.00 p99 48.20 p99.9 60.10 max 61.00\n"
	if got, err := ParseServed(line); err != nil || got != (Served{412, 20.31, 48.2}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, line := range []string{"", "requests", "inference: x requests: p50 1 p99 2", "inference: 0 requests: p50 0 p99 0", "inference: 3 requests p50 1 p99"} {
		if got, err := ParseServed(line); err == nil {
			t.Errorf("%q is taken for %+v", line, got)
		}
	}
}
