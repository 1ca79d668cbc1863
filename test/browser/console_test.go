package browser

import (
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
)

// problemOf returns what an event of the browser says of a mistake in the page: an exception, a
// blocked resource, a warning of its console; "": nothing.
func problemOf(event any) string {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		return text
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			return e.Entry.Text
		}
	}
	return ""
}
