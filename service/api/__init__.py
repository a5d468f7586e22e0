"""What can be asked of the service, a function for each operation.

``from service import api``, then ``client(api.plans.apply, plan_id)``.

Its decorator says how it is reached over HTTP, its signature what it takes and gives. The same function is called over HTTP
(``intentctl.client``), by the service (``http``, with a ``ServiceContext``) and from a deployment file alone (``Offline``). These
modules import late what runs an operation: a client needs the declarations alone.
"""

from service.api import audit as audit
from service.api import intents as intents
from service.api import keys as keys
from service.api import openslo as openslo
from service.api import operations as operations
from service.api import plans as plans
from service.api import promises as promises
from service.api import state as state
