package api_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// rolesOf is a valid specification with two roles.
func rolesOf() api.WorkloadSpec {
	quarter := api.Share{Compute: api.Compute{Floor: 250, Ceiling: 250}}
	return api.WorkloadSpec{
		Share: quarter, CPU: 2000, Command: []string{"./leader"}, Dir: "/",
		Roles: []api.Role{
			{Name: "worker", Replicas: api.Replicas{Min: 4, Max: 4}, Share: api.Share{Compute: api.Compute{Floor: 500, Ceiling: 1000}}, Devices: 2, Model: "H200", Command: []string{"./worker", "\xff"}},
			{Name: "store", Share: quarter, Memory: 1 << 30},
		},
	}.Default()
}

// A process of a role is shown as one of a workload of its own, from which the whole is found again; so it is through JSON.
func TestRolesExchange(t *testing.T) {
	spec := rolesOf()
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	if store := spec.Roles[1]; store.Devices != 1 || store.Command[0] != "./leader" || store.Share.Memory.Floor.Part != 250 {
		t.Errorf("by default the store is %+v", store)
	}
	if least, most := spec.Tasks(); least != 6 || most != 6 || !spec.Several() {
		t.Errorf("it has %d..%d processes", least, most)
	}
	for number, want := range []api.Replica{{Role: "main"}, {Role: "worker"}, {Role: "worker", InRole: 1}, {Role: "worker", InRole: 2}, {Role: "worker", InRole: 3}, {Role: "store"}} {
		role, rank := spec.RoleOf(number)
		if role != want.Role || rank != want.InRole {
			t.Errorf("number %d is %s %d, not %+v", number, role, rank, want)
		}
		one := api.Workload{Spec: spec.InRole(role), Status: api.WorkloadStatus{Replica: &api.Replica{Number: number, Role: role, InRole: rank}}}
		text, err := json.Marshal(one)
		var back api.Workload
		if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back, one) {
			t.Fatalf("%s reads back as %+v (%v)", text, back, err)
		}
		if whole := back.Whole(); !reflect.DeepEqual(whole, spec) {
			t.Errorf("of number %d the whole is %+v", number, whole)
		}
		if said := back.RolesText(); said != "1 main, 4 worker, 1 store" {
			t.Errorf("of number %d the roles are %s", number, said)
		}
		asks := map[string]api.Role{"main": {CPU: 2000, Devices: 1, Share: spec.Share}, "worker": spec.Roles[0], "store": spec.Roles[1]}[role]
		if has := back.Spec; has.Share != asks.Share || has.Devices != asks.Devices || has.Model != asks.Model || has.CPU != asks.CPU || has.Memory != asks.Memory {
			t.Errorf("%s asks for %+v", role, has)
		}
	}
}

// What would be wrong with a workload is wrong with a role.
func TestRolesOfSpec(t *testing.T) {
	for what, change := range map[string]func(*api.WorkloadSpec){
		"too many": func(s *api.WorkloadSpec) {
			s.Roles = append(s.Roles, api.Role{Name: "c"}, api.Role{Name: "d"})
			*s = s.Default()
		},
		"elastic":       func(s *api.WorkloadSpec) { s.Replicas = api.Replicas{Min: 1, Max: 2} },
		"elastic role":  func(s *api.WorkloadSpec) { s.Roles[0].Replicas = api.Replicas{Min: 1, Max: 2} },
		"processes":     func(s *api.WorkloadSpec) { s.Roles[0].Replicas = api.Replicas{Min: 1023, Max: 1023} },
		"no name":       func(s *api.WorkloadSpec) { s.Roles[0].Name = "" },
		"same name":     func(s *api.WorkloadSpec) { s.Roles[0].Name = "store" },
		"main":          func(s *api.WorkloadSpec) { s.Roles[0].Name = api.MainRole },
		"devices":       func(s *api.WorkloadSpec) { s.Roles[0].Devices = api.MaxDevices + 1 },
		"share":         func(s *api.WorkloadSpec) { s.Roles[0].Share.Compute.Floor = 1001 },
		"little memory": func(s *api.WorkloadSpec) { s.Roles[0].Share.Memory = api.Memory{Ceiling: api.Amount{Bytes: 1}} },
		"NUL":           func(s *api.WorkloadSpec) { s.Roles[0].Command = []string{"a\x00"} },
		"CPU":           func(s *api.WorkloadSpec) { s.Roles[0].CPU = -1 },
		"long command": func(s *api.WorkloadSpec) {
			s.Roles[0].Command = []string{"a", string(make([]byte, api.MaxCommandBytes))}
		},
	} {
		spec := rolesOf()
		change(&spec)
		if err := spec.Validate(); err == nil {
			t.Errorf("%s is valid", what)
		}
	}
}
