package gateway

import (
	"context"
	"net/http"

	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// maxDevice is the largest body of a device, in bytes: a token of 4096 bytes, and short
// names beside it, each letter an escape of six.
const maxDevice = 6*(4096+1024) + 1<<10

// theirDevices are a user's devices in an answer: those of the caller's apps.
type theirDevices struct {
	UserID  string             `json:"user_id"`
	Devices []forms.Registered `json:"devices"`
	// Unreadable: the latest record of a device, of whatever app, cannot be read.
	Unreadable bool `json:"unreadable"`
}

// devices answers GET /v1/users/{user}/devices.
func (g *Gateway) devices(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	u, problem := g.stored(r.Context(), v.user)
	if problem != nil {
		return problem
	}
	a := theirDevices{UserID: v.user, Devices: []forms.Registered{}, Unreadable: u.Quarantine&push.DeviceUnread != 0}
	for i := range u.Devices {
		if d := &u.Devices[i]; v.has(d.App) {
			a.Devices = append(a.Devices, forms.OfDevice(d))
		}
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// device answers GET /v1/users/{user}/devices/{device}.
func (g *Gateway) device(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	hash := r.PathValue("device")
	if err := record.CheckHash(hash); err != nil {
		return invalid(err)
	}
	u, problem := g.stored(r.Context(), v.user)
	if problem != nil {
		return problem
	}
	d := record.DeviceOf(&u.User, hash)
	if d == nil || !v.has(d.App) {
		return noDevice()
	}
	answer(w, http.StatusOK, "application/json", forms.OfDevice(d))
	return nil
}

// noDevice is the problem of a device that there is not, or that is of an app that its
// caller does not see: he is told the same.
func noDevice() *Problem {
	return newProblem(codeNoDevice, "the user has no such device, or of other apps than yours")
}

// setDevice answers PUT /v1/users/{user}/devices, and …/devices/{device}, which says once
// more what the hash of the token is.
func (g *Gateway) setDevice(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	var f forms.Device
	if problem := g.readObject(r, maxDevice, &f, forms.DeviceFields); problem != nil {
		return problem
	}
	if problem := v.fill(&f); problem != nil {
		return problem
	}
	registration, err := f.Registration(clock())
	if err != nil {
		return invalid(err)
	}
	hash := push.DeviceHash(registration.Device.Platform, registration.Device.Token)
	switch named := r.PathValue("device"); {
	case named != "" && named != hash:
		return newProblem(codeInvalidField, "it is not the token of the device that the path names").at("/token")
	case !v.has(f.App):
		return newProblem(codeForeignApp, "the device is of another app than yours").at("/app")
	case !g.knows(f.App):
		return refused(&push.Defect{Reason: push.UnknownApp, Field: "app"})
	}
	problem := g.change(r.Context(), "device", func(ctx context.Context, c *users.Client) error {
		_, err := c.RegisterDevice(ctx, registration.User, registration.Device)
		return err
	})
	if problem != nil {
		return problem
	}
	answer(w, http.StatusAccepted, "application/json", changed{UserID: v.user, Device: hash})
	return nil
}

// fill adds to a device what the request says beside its body. What an app's client says
// of the time does not count: whoever registered a token last has it.
func (v *visitor) fill(f *forms.Device) *Problem {
	if f.UserID != "" && f.UserID != v.user {
		return newProblem(codeInvalidField, "another user than the one of the path").at("/user_id")
	}
	f.UserID = v.user
	if v.pass == nil {
		return nil
	}
	if f.RegisteredAt != "" {
		return newProblem(codeInvalidField, "with a user's token the time is the gateway's: leave it out").at("/registered_at")
	}
	if f.App == "" {
		f.App = v.pass.app
	}
	return nil
}

// removeDevice answers DELETE /v1/users/{user}/devices/{device}. What there is not is
// removed all the same: it may have been registered a moment ago, and be on its way.
func (g *Gateway) removeDevice(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	hash := r.PathValue("device")
	if err := record.CheckHash(hash); err != nil {
		return invalid(err)
	}
	if g.o.Users.registry != nil { // without one it cannot be known of which app it is
		u, problem := g.stored(r.Context(), v.user)
		if problem != nil {
			return problem
		}
		if d := record.DeviceOf(&u.User, hash); d != nil && !v.has(d.App) {
			return noDevice()
		}
	}
	problem := g.change(r.Context(), "device_removed", func(ctx context.Context, c *users.Client) error { return c.RemoveDevice(ctx, v.user, hash) })
	if problem != nil {
		return problem
	}
	answer(w, http.StatusAccepted, "application/json", changed{UserID: v.user, Device: hash})
	return nil
}
