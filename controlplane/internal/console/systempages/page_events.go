package systempages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type eventsView struct {
	List  *adminclient.EventList
	Pages kit.Pages
	Types []adminclient.EventType
	// Names are those of accounts by their ids.
	Names  map[string]string
	Filter struct{ Type, AccountID string }
}

// listEvents shows what happened to accounts, keys and the system, newest first, with the deliveries of each event.
func listEvents(r *kit.Request) (*kit.Page, error) {
	data := &eventsView{Types: eventTypes}
	data.Filter.Type, data.Filter.AccountID = r.Text("type"), r.Text("account_id")
	answer, err := r.API.ListEvents(r.Context(), &adminclient.ListEventsParams{
		Type:      kit.Optional(data.Filter.Type),
		AccountID: kit.Optional(data.Filter.AccountID),
		Cursor:    kit.Cursor(r),
		Limit:     new(kit.PageSize),
	})
	if err != nil {
		return nil, err
	}

	var ids []string
	for i := range answer.Value.Data {
		if id := answer.Value.Data[i].Event.Data.AccountID; id != nil {
			ids = append(ids, *id)
		}
	}
	if data.Names, err = kit.Names(r, ids); err != nil {
		return nil, err
	}

	data.List, data.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	command := kit.Command("events list", "--type", data.Filter.Type, "--account-id", data.Filter.AccountID)
	return &kit.Page{
		Template: "events",
		Title:    "Events",
		Command:  command,
		Data:     data,
	}, nil
}
