// Package controller does for the webhook what that may not, and says of queues and policies whether they hold: everything that is written about
// what users ask for, before any scheduler sees it. What comes in are pods that wait for the template of a claim, the certificate that the webhook
// shows, and the objects of aliquot.dev; what goes out are the templates, certificates before the ones in use end, and conditions.
//
// It decides nothing of who gets what, and keeps nothing that it could not find again: any number of it may be started, of which one works at
// a time, and killed at any moment. Clocks are passed in.
package controller
