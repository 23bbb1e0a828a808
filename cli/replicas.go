package cli

import (
	"fmt"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
)

// replicasText is how many replicas a workload has, behind the state of the first.
func replicasText(work api.Workload) string {
	r, roles := work.Spec.Replicas, work.RolesText()
	switch one := work.Status.Replica; {
	case !work.Spec.Several() || work.Status.Phase == api.Ended || one != nil && one.Number > 0:
		return ""
	case work.Status.Replicas == 0 && roles != "":
		return ", " + roles
	case work.Status.Replicas == 0:
		return ", " + r.String() + " replicas"
	case roles != "":
		least, _ := work.Spec.Tasks()
		return fmt.Sprintf(", %d of %d", work.Status.Replicas, least)
	default:
		return fmt.Sprintf(", %d of %s", work.Status.Replicas, r)
	}
}

// replicasOf is how many replicas a workload has, and which one of them this is.
func replicasOf(work api.Workload) string {
	of := work.Spec.Replicas.String()
	if roles := work.RolesText(); roles != "" {
		least, _ := work.Whole().Tasks()
		of = strconv.Itoa(least) + ": " + roles
	}
	text := of
	if now := work.Status.Replicas; now > 0 {
		text = fmt.Sprintf("%d of %s", now, of)
	}
	if one := work.Status.Replica; one != nil {
		text += fmt.Sprintf("; this is number %d", one.Number)
		if one.Role != "" {
			text += fmt.Sprintf(", %s %d", one.Role, one.InRole)
		}
	}
	return text
}

// roleText is how many processes a role has, what each asks for, and their program.
func roleText(r api.Role) string {
	one := api.WorkloadSpec{Share: r.Share, Devices: r.Devices}
	text := fmt.Sprintf("%d of %s of compute, %s of memory", r.Replicas.Least(), shareText(one), memoryText(api.Workload{Spec: one}))
	if r.Model != "" {
		text += ", on " + r.Model
	}
	return text + ": " + commandText(r.Command)
}

// askedText is what a workload asked for: while it waits, of each role that it has too.
func askedText(work api.Workload) string {
	text := shareText(work.Spec)
	if work.Status.Phase != api.Waiting {
		return text
	}
	if n := work.Spec.Replicas.Least(); n > 1 && len(work.Spec.Roles) > 0 {
		text = fmt.Sprintf("%d of %s", n, text)
	}
	for _, r := range work.Spec.Roles {
		text += " + "
		if n := r.Replicas.Least(); n > 1 {
			text += fmt.Sprintf("%d of ", n)
		}
		text += shareText(api.WorkloadSpec{Share: r.Share, Devices: r.Devices})
	}
	return text
}
