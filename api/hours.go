package api

import (
	"strings"
	"time"
)

// Period is a time that begins again and again by the clocks of a zone: a day at midnight, a week with Monday, a month with its first day.
type Period string

// The periods.
const (
	Day   Period = "day"
	Week  Period = "week"
	Month Period = "month"
)

// HoursQuota is how many device-hours may be used of each period. A device-hour is a whole device's compute as a floor for an hour, however much
// of it is used; burst above floors is none of it. The zero HoursQuota is no bound.
type HoursQuota struct {
	Amount Quota // thousandths of a device-hour, at least 0
	Per    Period
}

// HoursUsed is what was used of a HoursQuota in a period.
type HoursUsed struct {
	Amount Quota     `json:"amount"` // thousandths of a device-hour
	Begin  time.Time `json:"begin"`  // of the period
	End    time.Time `json:"end"`    // of the period, when the next begins
}

// MaxHours is the largest amount of a HoursQuota, in thousandths: that of a million devices for longer than a month.
const MaxHours = Quota(1_000_000 * 1_000 * 1_000)

const hoursAdvice = "write device-hours of a day, week or month, for example 100/week or 0.5/day, or none"

// ParseHours reads `100/week`, or `none`.
func ParseHours(text string) (HoursQuota, error) {
	if text == "none" {
		return HoursQuota{}, nil
	}
	number, per, both := strings.Cut(text, "/")
	fail := func(at int, problem string) (HoursQuota, error) {
		return HoursQuota{}, &ParseError{What: "device-hours", Input: text, Offset: at, Problem: problem, Advice: hoursAdvice}
	}
	if !both {
		return fail(len(text), "a / is expected, and day, week or month")
	}
	switch Period(per) {
	case Day, Week, Month:
	default:
		return fail(len(number)+1, quoted(per)+" is no period")
	}
	amount, err := ParseQuota(number)
	if err != nil || amount < 0 || amount > MaxHours {
		return fail(0, "a number of device-hours with at most three decimals is expected, "+MaxHours.String()+" at most")
	}
	return HoursQuota{amount, Period(per)}, nil
}

// IsZero says that it is no bound.
func (q HoursQuota) IsZero() bool { return q == HoursQuota{} }

// String writes what ParseHours reads.
func (q HoursQuota) String() string {
	if q.IsZero() {
		return "none"
	}
	return q.Amount.String() + "/" + string(q.Per)
}

// MarshalText is String.
func (q HoursQuota) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText is ParseHours.
func (q *HoursQuota) UnmarshalText(text []byte) (err error) {
	*q, err = ParseHours(string(text))
	return err
}

// Valid says whether a HoursQuota could be read from its text.
func (q HoursQuota) Valid() bool {
	again, err := ParseHours(q.String())
	return err == nil && again == q
}
