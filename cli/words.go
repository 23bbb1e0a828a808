package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/top"
)

// unknown stands for what is not known: never a zero.
const unknown = "-"

// columns is how many columns of a terminal text takes.
func columns(text string) int { return ansi.StringWidth(text) }

// part prints a part of a device, `0.25`.
func part(m api.Milli) string {
	text := fmt.Sprintf("%d.%03d", m/api.WholeDevice, m%api.WholeDevice)
	return strings.TrimSuffix(text, "0")
}

// percent prints a rate that may not be known, `62%`.
func percent(m *api.Milli) string {
	if m == nil {
		return unknown
	}
	return strconv.Itoa(int((*m+5)/10)) + "%"
}

// size prints an amount of memory as everywhere: with three digits at most, and never more than there is.
func size(b api.Bytes) string { return top.Memory(b) }

// room prints memory that may be asked for: what is shown can be typed back.
func room(b api.Bytes) string { return size(b / api.Granule * api.Granule) }

// amount prints memory as it was asked for, a part or bytes.
func amount(a api.Amount) string {
	if a.Part != 0 {
		return a.String()
	}
	return size(a.Bytes)
}

func maybeSize(b *api.Bytes) string {
	if b == nil {
		return unknown
	}
	return size(*b)
}

// span prints two amounts of memory as `4Gi..8Gi`, one if they are the same.
func span(floor, ceiling api.Bytes) string {
	if floor == ceiling {
		return size(floor)
	}
	return size(floor) + ".." + size(ceiling)
}

// age prints a duration for reading, in its two largest units: `5s`, `3m20s`, `2h5m`, `3d4h`.
func age(d time.Duration) string {
	switch d = max(d, 0).Truncate(time.Second); {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return two(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < 24*time.Hour:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	default:
		return two(d/(24*time.Hour), "d", d%(24*time.Hour)/time.Hour, "h")
	}
}

func two(large time.Duration, first string, small time.Duration, second string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", large, first)
	}
	return fmt.Sprintf("%d%s%d%s", large, first, small, second)
}

// held prints device time, which may be short: `310ms`, `12.4s`, `1h02m`.
func held(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < time.Minute:
		return d.Truncate(100 * time.Millisecond).String()
	default:
		return age(d)
	}
}

// moment prints a time of the past with how long ago it was.
func (c *invocation) moment(at time.Time) string {
	return at.Local().Format("2006-01-02 15:04:05") + " (" + age(c.Now().Sub(at)) + " ago)"
}

// state is a workload's phase with what matters about it: `waiting, 2nd in line`, `failed (3)`.
func state(status api.WorkloadStatus) (string, string) {
	switch status.Phase {
	case api.Waiting:
		if status.Place > 0 {
			return fmt.Sprintf("waiting (%s)", ordinal(status.Place)), yellow
		}
		return "waiting", yellow
	case api.Running:
		return "running", green
	case api.Ended:
		return outcome(status)
	default:
		return string(status.Phase), cyan
	}
}

func outcome(status api.WorkloadStatus) (string, string) {
	switch status.Outcome {
	case api.Succeeded:
		return string(status.Outcome), plain
	case api.Failed:
		switch {
		case status.Signal != "":
			return fmt.Sprintf("failed (%s)", status.Signal), red
		case status.ExitCode != nil:
			return fmt.Sprintf("failed (%d)", *status.ExitCode), red
		}
		return "failed", red
	case api.Stopped:
		return string(status.Outcome), dim
	case "":
		return string(api.Ended), plain
	default:
		return string(status.Outcome), red
	}
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// plural prints a count with its noun.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// orUnknown is text, or `-` for nothing.
func orUnknown(text string) string {
	if text == "" {
		return unknown
	}
	return text
}
