// The entry: each module adds its section or page. Modules that ask serve come last, when all others listen.
import "./plot.js";
import "./views.js";
import "./overview.js";
import "./groups.js";
import "./load.js";
import "./topics.js";
import "./search.js";
import "./executions.js";
import "./plans.js";
import "./decisions.js";
import "./decision.js";
import "./audit.js";
import "./acting.js";
import "./plan.js";
import "./execution.js";
import "./live.js";
import "./sign_in.js";
