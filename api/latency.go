package api

import (
	"strconv"
	"strings"
)

// SlowestLatency is the last latency class that a device may be declared to be of; the first, 1, answers fastest.
const SlowestLatency = 9

// LatencyClasses say of which latency class devices are. No driver tells; who runs them declares it. Its text form is `2`, of all devices, or
// `1@H200,2@A10`; the empty one declares nothing.
type LatencyClasses []LatencyClass

// LatencyClass says it of the devices of a model, of one device, or of all.
type LatencyClass struct {
	Class int32  // from 1, which answers fastest, to SlowestLatency
	Of    string // a model, or the UUID of a device; empty: every device of which nothing else is said
}

const latencyAdvice = "write for example 2, or 1@H200,2@A10"

// ParseLatencyClasses reads `1@H200,2@A10`.
func ParseLatencyClasses(text string) (LatencyClasses, error) {
	var all LatencyClasses
	at := 0
	fail := func(offset int, problem string) (LatencyClasses, error) {
		return nil, &ParseError{What: "latency classes", Input: text, Offset: at + offset, Problem: problem, Advice: latencyAdvice}
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		number, of, named := strings.Cut(one, "@")
		class, err := strconv.ParseUint(strings.TrimSpace(number), 10, 8)
		if err != nil || class < 1 || class > SlowestLatency {
			return fail(0, "a class from 1, which answers fastest, to "+strconv.Itoa(SlowestLatency)+" is expected")
		}
		if of = strings.TrimSpace(of); of == "" && named {
			return fail(len(one), "a model or the UUID of a device is expected")
		}
		for _, other := range all {
			if strings.EqualFold(other.Of, of) && of != "" {
				return fail(0, quoted(of)+" has a class already")
			} else if other.Of == "" && of == "" {
				return fail(0, "all devices have a class already")
			}
		}
		all = append(all, LatencyClass{int32(class), of})
		at += len(one) + 1
	}
	return all, nil
}

// String writes what ParseLatencyClasses reads.
func (l LatencyClasses) String() string {
	var all []string
	for _, one := range l {
		text := strconv.Itoa(int(one.Class))
		if one.Of != "" {
			text += "@" + one.Of
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}
